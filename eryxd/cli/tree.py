"""The tree of commands.  Only the module of the wanted one is imported; help lists all from the table here."""

import errno
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from eryxd.cli import kit
from eryxd.client.errors import ClientError
from eryxd.domain.errors import ErrorCode, EryxError


class Word(NamedTuple):
    """A first word: a single verb, or a group of verbs that is named after its noun."""

    summary: str
    section: str
    is_group: bool = True
    alias: str = ""


_DAILY, _NOUNS, _SERVICE = "Every day", "What there is", "The daemon"

WORDS: Final = {
    "run": Word("Send a message and follow the run.", _DAILY, is_group=False),
    "approvals": Word("What waits for you, and your answers.", _DAILY, alias="approval"),
    "timeline": Word("Show what a run did.", _DAILY, is_group=False),
    "status": Word("Show how the daemon is.", _DAILY, is_group=False),
    "sessions": Word("Conversations, and what each approves by itself.", _NOUNS, alias="session"),
    "runs": Word("Turns of sessions.", _NOUNS),
    "messages": Word("Transcripts.", _NOUNS, alias="message"),
    "patterns": Word("Teams of agents and what they must ask about.", _NOUNS, alias="pattern"),
    "projects": Word("Folders that sessions work in.", _NOUNS, alias="project"),
    "tools": Word("What agents can call.", _NOUNS, alias="tool"),
    "providers": Word("What offers tools, and the entries you define.", _NOUNS, alias="provider"),
    "plugins": Word("What extends eryx, and what of it you have enabled.", _SERVICE, alias="plugin"),
    "daemon": Word("Start, stop and look at the daemon.", _SERVICE),
    "store": Word("Check, back up and restore what is remembered.", _SERVICE),
    "call": Word("Call a method of the socket.", _SERVICE, is_group=False),
    "demo": Word("See two agents being governed.", _SERVICE, is_group=False),
    "version": Word("Print the version.", _SERVICE, is_group=False),
}
"""Every first word.  Its module has the same name and holds the typer group `app`, or a function of that name."""

ALIASES: Final = {word.alias: name for name, word in WORDS.items() if word.alias}
"""Singular to plural.  `run` is a verb, so `runs` has none."""


class Root(TyperGroup):
    """The first word is looked up in `WORDS`; an error of any command ends here, as one line and an exit status."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(WORDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = ALIASES.get(cmd_name, cmd_name)
        if name in WORDS:
            return load(name)
        from eryxd.cli import plugin_groups

        return plugin_groups.load(name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in WORDS and args[0] not in ALIASES and self.get_command(ctx, args[0]) is None:
            from difflib import get_close_matches

            near = get_close_matches(args[0], WORDS, n=1)
            ctx.fail(f"There is no command {args[0]!r}." + "".join(f"  Did you mean {each!r}?" for each in near))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for section in (_DAILY, _NOUNS, _SERVICE):
            with formatter.section(section):
                formatter.write_dl([(name, word.summary) for name, word in WORDS.items() if word.section == section])
        from eryxd.cli import plugin_groups

        if theirs := plugin_groups.known():
            with formatter.section("Plugins"):
                formatter.write_dl(list(theirs.items()))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (ClientError, EryxError) as error:
            raise typer.Exit(kit.fail(error, kit.wants_json(ctx))) from error
        except OSError as error:
            # A reader that has gone is no failure of ours; click ends such a command quietly.
            if error.errno == errno.EPIPE:
                raise
            raise typer.Exit(kit.fail(_refused(error), kit.wants_json(ctx))) from error


def _refused(error: OSError) -> kit.Problem:
    """Return what the system refused, as one line."""
    where = f"{error.filename}: " if error.filename is not None else ""
    return kit.Problem(f"The system refuses: {where}{error.strerror or error}.", code=ErrorCode.INTERNAL)


def load(name: str) -> Any:
    """Return the click command of a first word."""
    import importlib

    word, module = WORDS[name], importlib.import_module(f"eryxd.cli.{name}")
    if word.is_group:
        return get_group(module.app)
    app = kit.group(word.summary)
    app.command(name)(getattr(module, name))
    return get_command(app)


app = typer.Typer(
    name="eryx",
    cls=Root,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        from eryxd import __version__

        print(f"eryx {__version__}")
        raise typer.Exit


@app.callback()
def eryx(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Decide what your coding agents may do.

    `eryx daemon start` once, then `eryx run MESSAGE`; what needs you is in `eryx approvals list`.
    """
