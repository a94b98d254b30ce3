"""config.toml: the defaults, every key, every way to be wrong."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from eryxd.domain.errors import Invalid
from eryxd.settings import (
    MAX_CONFIG_BYTES,
    ApprovalsSection,
    DefaultsSection,
    GuardSection,
    LimitsSection,
    SessionsSection,
    Settings,
    load,
)
from eryxd.trust import require_trusted
from tests.requirements import requirement

FULL = """\
[approvals]
default = "none"

[defaults]
backend = "copilot"

[sessions]
tooling = "all"

[limits]
connections = 64
connections_per_peer = 8
journal_events = 1000
journal_days = 30

[guard]
no_new_privs = false
"""


def written(folder: Path, text: str | bytes) -> str:
    """Write a configuration file as the user would, and return its path."""
    folder.chmod(0o700)
    file = folder / "config.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    file.chmod(0o644)
    return str(file)


def refusal(path: str) -> Invalid:
    with pytest.raises(Invalid) as caught:
        load(path)
    assert caught.value.data["file"] == path
    return caught.value


@requirement("CLI-22", "POL-4")
def test_absent_file_is_the_defaults(tmp_path: Path) -> None:
    """The defaults are the narrowest values: ask, and mind the mark of an agent."""
    assert load(str(tmp_path / "nowhere" / "config.toml")) == Settings(
        approvals=ApprovalsSection(default="ask"),
        defaults=DefaultsSection(backend=UNSET),
        sessions=SessionsSection(tooling="none"),
        limits=LimitsSection(connections=256, connections_per_peer=32, journal_events=100_000, journal_days=7),
        guard=GuardSection(no_new_privs=True),
    )


@requirement("CLI-22")
@pytest.mark.parametrize("text", ["", "# nothing\n", "[limits]\n", "\n[guard]\n[approvals]\n"])
def test_file_that_sets_nothing_is_the_defaults(tmp_path: Path, text: str) -> None:
    """Sections may be empty."""
    assert load(written(tmp_path, text)) == Settings()


@requirement("CLI-22")
def test_every_setting_is_read(tmp_path: Path) -> None:
    """The whole file, compared as a whole."""
    assert load(written(tmp_path, FULL)) == Settings(
        approvals=ApprovalsSection(default="none"),
        defaults=DefaultsSection(backend="copilot"),
        sessions=SessionsSection(tooling="all"),
        limits=LimitsSection(connections=64, connections_per_peer=8, journal_events=1000, journal_days=30),
        guard=GuardSection(no_new_privs=False),
    )


@requirement("CLI-22")
def test_all_problems_are_told_each_with_its_line(tmp_path: Path) -> None:
    """One edit corrects them all."""
    path = written(
        tmp_path,
        """\
# conections is misspelt below
[limits]
conections = 3
journal_days = "long"
[approvals]
default = "yes"
[gurad]
no_new_privs = false
[sessions]
tooling = 1
[guard]
no_new_privs = 1
""",
    )
    error = refusal(path)
    problems = [
        {"path": "limits.conections", "line": 3, "message": "limits.conections is not a setting.  "
         "Did you mean limits.connections?"},
        {"path": "limits.journal_days", "line": 4, "message": "limits.journal_days: Expected `int`, got `str`."},
        {"path": "approvals.default", "line": 6, "message": 'approvals.default: must be "ask" or "none".'},
        {"path": "gurad", "line": 7, "message": "gurad is not a setting.  Did you mean guard?"},
        {"path": "sessions.tooling", "line": 10, "message": 'sessions.tooling: must be "none" or "all".'},
        {"path": "guard.no_new_privs", "line": 12,
         "message": "guard.no_new_privs: Expected `bool`, got `int`."},
    ]  # fmt: skip

    assert error.data["problems"] == problems
    assert error.message.splitlines() == [f"{path}, line {p['line']}: {p['message']}" for p in problems]


@requirement("CLI-22")
@pytest.mark.parametrize(
    "text",
    [
        "limits = 3",
        "[[limits]]\nconnections = 3",
        "limits.connections = 0",
        "limits.connections = -1",
        "limits.connections = 1.0",
        "limits.connections = true",
        'limits.connections = "3"',
        "limits.connections = [3]",
        "limits.connections = {}",
        "limits.connections.x = 3",
        "limits.journal_days = 99999999999999999999",
        "limits.journal_days = nan",
        "limits.journal_days = 2026-01-01",
        'defaults.backend = ""',
        "defaults.backend = 1",
        "guard.no_new_privs = 'false'",
        'approvals.default = "ASK"',
        "approvals.default = []",
        'unknown = "x"',
        '"" = 1',
        '"\\u001b[31m" = 1',
        "limits.'connections ' = 3",
    ],
)
def test_one_wrong_value_refuses_the_file_and_names_its_line(tmp_path: Path, text: str) -> None:
    """Whole or not at all."""
    error = refusal(written(tmp_path, text))

    assert len(error.message.splitlines()) == 1
    assert "\x1b" not in error.message


@requirement("CLI-22")
def test_a_line_is_left_out_where_it_is_not_certain(tmp_path: Path) -> None:
    """Half of a value over several lines does not parse, so no line is claimed."""
    error = refusal(written(tmp_path, '[limits]\nextra = """\n[guard]\nextra = 1\n"""\n'))

    assert error.data["problems"] == [
        {
            "path": "limits.extra",
            "message": "limits.extra is not a setting.  Known here: limits.connections, "
            "limits.connections_per_peer, limits.journal_events, limits.journal_days.",
        }
    ]


@requirement("CLI-22")
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[limits\n", "line 1"),
        ("a = 1\na = 2\n", "line 2"),
        (b"x = 1\n# \xff\n", "line 2"),
        ("a = " + "[" * 5000, "nested"),
        ("#" * (MAX_CONFIG_BYTES + 1), "larger"),
    ],
)
def test_what_is_not_toml_is_refused_with_the_place(tmp_path: Path, text: str | bytes, named: str) -> None:
    """The message is all that the person has to go by."""
    assert named in refusal(written(tmp_path, text)).message


@requirement("CLI-22")
@given(text=st.text(max_size=200))
def test_any_text_is_settings_or_invalid(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing else ever comes out, so a reload can rely on it."""
    path = written(tmp_path_factory.mktemp("any"), text.encode("utf-8", "surrogatepass"))
    with suppress(Invalid):
        load(path)


@requirement("CLI-22")
@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_file_that_others_can_write_is_refused_with_the_command(tmp_path: Path, mode: int) -> None:
    """Whoever writes `default = "none"` into it approves everything."""
    path = written(tmp_path, FULL)
    os.chmod(path, mode)

    assert refusal(path).message.endswith(f"Type: chmod go-w {path}")


@requirement("CLI-22")
def test_folder_that_others_can_write_is_refused_with_the_command(tmp_path: Path) -> None:
    """In such a folder the file can be replaced, whatever its own mode."""
    folder = tmp_path / "with space"
    folder.mkdir()
    path = written(folder, FULL)
    folder.chmod(0o770)
    with pytest.raises(Invalid) as caught:
        load(path)

    assert caught.value.message.endswith(f"Type: chmod go-w '{folder}'")


@requirement("CLI-22")
def test_folder_behind_a_link_is_checked_too(tmp_path: Path) -> None:
    """Configuration kept elsewhere and linked is fine, if nobody else can replace it there."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = written(elsewhere, FULL)
    link = tmp_path / "config.toml"
    link.symlink_to(target)
    tmp_path.chmod(0o700)
    assert load(str(link)).limits.connections == 64

    elsewhere.chmod(0o777)
    with pytest.raises(Invalid):
        load(str(link))


@requirement("CLI-22")
def test_owner_must_be_the_user_or_root() -> None:
    """Root can do what it likes anyway; any other owner could widen what is asked."""
    stranger = os.getuid() + 4242
    require_trusted("/c", os.stat_result((0o100644, 0, 0, 1, 0, 0, 0, 0, 0, 0)))
    require_trusted("/c", os.stat_result((0o100644, 0, 0, 1, os.getuid(), 0, 0, 0, 0, 0)))

    with pytest.raises(Invalid, match=f"uid {stranger}"):
        require_trusted("/c", os.stat_result((0o100644, 0, 0, 1, stranger, 0, 0, 0, 0, 0)))


@requirement("CLI-22")
def test_link_to_nothing_is_not_an_absent_file(tmp_path: Path) -> None:
    """Somebody meant to have settings there."""
    link = tmp_path / "config.toml"
    link.symlink_to(tmp_path / "gone")

    assert "link to nothing" in refusal(str(link)).message


@requirement("CLI-22")
def test_what_is_not_a_file_is_refused_at_once(tmp_path: Path) -> None:
    """A named pipe would otherwise hang the start, and a folder confuse it."""
    tmp_path.chmod(0o700)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    assert "not a regular file" in refusal(str(tmp_path / "pipe")).message
    assert "not a regular file" in refusal(str(tmp_path / "folder")).message
