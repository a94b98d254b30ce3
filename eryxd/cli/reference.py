"""`docs/commands.md`, written from the commands themselves: `python -m eryxd.cli.reference > docs/commands.md`."""

from collections.abc import Iterator
from typing import Any, Final

from eryxd.api.errors import EXIT_NO_DAEMON, EXIT_RUN_CANCELLED, EXIT_RUN_FAILED, EXIT_STATUS
from eryxd.cli.report import EXIT_STILL_RUNNING
from eryxd.cli.tree import ALIASES, WORDS, load
from eryxd.domain.errors import ErrorCode, EryxError

INTRODUCTION: Final = """\
# Commands

Written from the commands themselves by `python -m eryxd.cli.reference`; a test keeps it current.

- Every command takes `--json` and then prints the wire form: the reply of the method as one line of JSON, in
  ASCII. `eryx run --json` and `eryx timeline --follow --json` print one event a line instead. With `--json` an
  error is `{"error": {"code", "message", "data"}}` on standard error; the exit status is the same.
- Every command takes `--help`. A group can be called by its singular: `eryx session list`. `run` is a verb.
- An id is accepted by any beginning of at least four characters that no other has. Lists show the shortest one.
  A run is looked for among the newest thousand. Patterns and projects are found by name as well, or by at least
  four characters that only one name begins with; a project by its folder too.
- Colour is used on a terminal only, and not when `NO_COLOR` is set or `TERM=dumb`. Decisions carry a mark and a
  word: `✓ approved`, `✗ rejected`, `? waiting`.
- What agents and tools wrote is shown with control characters, text directions and invisible characters spelt
  out (`\\x1b`, `\\u202e`), each line behind a rule, so that it can neither move the cursor nor pose as eryx.
- `ERYX_HOME` moves everything that eryx keeps, and the socket.
"""

ANSWERING: Final = """\
## Answering in place

Where input and output are a terminal, `eryx run` and `eryx timeline --follow` ask about each approval:

| key | what it does |
|---|---|
| `a` | approves this once; asks again where lines of it were not shown |
| `A` | approves, and lets the session auto-approve the tool from now on; offered where that is possible |
| `r` | rejects; asks for a note, which the agent is told; Ctrl-D goes back |
| `s` | shows everything: the whole content, digest, who asks, what remembering would do |
| `l` | later: goes on without an answer and prints the command to type |

Keys that were typed before the question, pasted text and arrow keys count for nothing. The digest of what was
shown goes back with the answer. What another client decides meanwhile ends the question.

The first Ctrl-C leaves the run alone and says how to come back; a second one within 2 seconds cancels it.
`eryx timeline --follow` is left with one Ctrl-C and cancels nothing.
"""

OUTCOMES: Final = (
    (0, "", "It worked. Also: somebody else had made the same decision already."),
    (EXIT_RUN_FAILED, "", "The run that was followed or waited for failed."),
    (2, "", "The command line is wrong: an unknown option, a missing argument."),
    (EXIT_NO_DAEMON, "", "The daemon is not running, or the connection broke."),
    (EXIT_STILL_RUNNING, "", "`runs wait` gave up before the run ended; or there was no answer in time."),
    (EXIT_RUN_CANCELLED, "", "The run that was followed or waited for was cancelled, or was left with Ctrl-C."),
)
"""Exit statuses that no error code stands for."""

_UNCLASSED: Final = {
    ErrorCode.INTERNAL: "A fault of eryx; the log has more.",
    ErrorCode.PROVIDER_FAILED: "A tool provider could not do its work.",
}


def reference() -> str:
    """Return the whole page."""
    return "\n".join([INTRODUCTION, *_commands(), ANSWERING, *_exit_statuses()])


def _commands() -> Iterator[str]:
    section = ""
    for name, word in WORDS.items():
        if word.section != section:
            section = word.section
            yield f"## {section}\n"
        command = load(name)
        if not word.is_group:
            yield from _command(f"eryx {name}", command)
            continue
        alias = next((f" Also `eryx {alias}`." for alias, plural in ALIASES.items() if plural == name), "")
        yield f"### eryx {name}\n\n{word.summary}{alias}\n"
        for verb, each in command.commands.items():
            yield from _command(f"eryx {name} {verb}", each, "####")


def _command(name: str, command: Any, mark: str = "###") -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and "--json" not in each.opts]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *(_metavar(each) for each in arguments)])
    yield f"{mark} `{usage}`\n\n{_paragraphs(command.help)}\n"
    rows = [(_metavar(each), each.help) for each in arguments if each.help]
    rows += [(_option(each), each.help) for each in options]
    if rows:
        yield "\n".join(
            ["| | |", "|---|---|", *(f"| `{_cell(left)}` | {_cell(right or '')} |" for left, right in rows)]
        )
        yield ""


def _metavar(argument: Any) -> str:
    shown = str(argument.metavar or argument.name.upper())
    return shown if argument.required else f"[{shown}]"


def _option(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def _paragraphs(help: str) -> str:
    return "\n\n".join(" ".join(each.split()) for each in help.split("\n\n"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _exit_statuses() -> Iterator[str]:
    yield "## Exit statuses\n\n| status | error code | what happened |\n|---|---|---|"
    meanings = {each.code: _first_sentence(each) for each in EryxError.__subclasses__()} | _UNCLASSED
    rows = [*OUTCOMES, *((status, f"`{code}`", meanings[code]) for code, status in EXIT_STATUS.items())]
    for status, code, meaning in sorted(rows, key=lambda row: row[:2]):
        yield f"| {status} | {code} | {meaning} |"
    yield ""


def _first_sentence(error: type[EryxError]) -> str:
    return " ".join((error.__doc__ or "").strip().split("\n\n")[0].split())


if __name__ == "__main__":
    print(reference(), end="")
