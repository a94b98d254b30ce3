"""Text that came from elsewhere is harmless on a terminal, and short ids are found again."""

import io
import re
from typing import Final

import pytest
from hypothesis import given, strategies as st

from eryxd.cli.refs import LEAST, pick, shorten
from eryxd.cli.report import Problem, to_json
from eryxd.cli.text import PLAIN, Look, block, clock, columns, cut, look, plural, table, visible
from tests.requirements import requirement

IDS: Final = st.lists(st.from_regex(r"\Aa[a-z2-7]{16}\Z"), min_size=1, max_size=30, unique=True)

OBEYED: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u2069\ufeff\U000e0000-\U000e01ef]"
)
"""What a terminal would act on, or a person would not see."""


class Screen(io.StringIO):
    """An output that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("not a real one")


@requirement("CLI-1")
@given(st.text())
def test_nothing_that_a_terminal_obeys_stays_in_one_line(text: str) -> None:
    assert not OBEYED.search(visible(text))


@requirement("CLI-1")
@given(st.text(), st.integers(min_value=12, max_value=120))
def test_a_block_keeps_foreign_text_behind_its_rule_and_off_the_margin(text: str, width: int) -> None:
    lines = block(text, Look(width=width))

    assert all(line.startswith("  │ ") for line in lines)
    assert all(columns(line) <= width for line in lines)
    assert not any(OBEYED.search(line) for line in lines)


@given(st.text())
def test_what_is_visible_stays_as_it_is(text: str) -> None:
    assert visible(visible(text)) == visible(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb", "a\\rb"),
        ("two\nlines", "two\\nlines"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("rm\u00a0-rf", "rm\\xa0-rf"),
        ("\U000e0041", "\\U000e0041"),
        ("x\ufe0f", "x\\ufe0f"),
        ("⚠\ufe0f done ✓", "⚠\ufe0f done ✓"),
        ("日本\u3000語", "日本\u3000語"),
    ],
)
def test_controls_directions_and_the_invisible_are_spelt_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(), st.integers(min_value=1, max_value=60))
def test_a_cut_line_fits(text: str, width: int) -> None:
    assert columns(cut(text, width)) <= width


def test_columns_line_up_whatever_the_colours_and_the_script() -> None:
    rows = [("日本", "x"), (Look(colour=True).paint("red", "abc"), "y")]

    assert [columns(line) for line in table(rows)] == [7, 7]
    assert [line[-1] for line in table(rows)] == ["x", "y"]


@requirement("CLI-2")
def test_no_color_and_dumb_terminals_and_files_get_no_colour() -> None:
    told = [
        look(stream, environ).colour
        for stream, environ in (
            (Screen(), {"TERM": "xterm"}),
            (Screen(), {"TERM": "xterm", "NO_COLOR": ""}),
            (Screen(), {"TERM": "xterm", "NO_COLOR": "1"}),
            (Screen(), {"TERM": "dumb"}),
            (io.StringIO(), {"TERM": "xterm"}),
        )
    ]

    assert told == [True, True, False, False, False]


def test_without_colour_nothing_is_painted() -> None:
    assert PLAIN.paint("red", "word") == "word"


@requirement("CLI-3", "APR-9")
@given(IDS)
def test_a_short_id_is_unique_and_found_again(ids: list[str]) -> None:
    short = shorten(ids)

    assert len(set(short.values())) == len(ids)
    assert all(len(each) >= LEAST for each in short.values())
    assert [pick("approval", short[id], ids) for id in ids] == ids


@requirement("CLI-3")
def test_a_short_id_is_as_short_as_it_can_be() -> None:
    assert shorten(["aaaaaaaa", "aaaaabbb", "abcdefgh"]) == {
        "aaaaaaaa": "aaaaaa",
        "aaaaabbb": "aaaaab",
        "abcdefgh": "abcd",
    }


@pytest.mark.parametrize(
    ("given", "code"), [("aaa", "invalid_params"), ("aaaa", "invalid_params"), ("zzzz", "not_found")]
)
def test_an_id_that_is_too_short_ambiguous_or_unknown_is_refused(given: str, code: str) -> None:
    with pytest.raises(Problem) as refused:
        pick("approval", given, ["aaaaaaaa", "aaaaabbb"])

    assert refused.value.code == code


def test_an_id_is_accepted_in_capitals() -> None:
    assert pick("run", "RABC", ["rabcdefg"]) == "rabcdefg"


def test_json_is_one_line_of_ascii_with_bytes_as_base64() -> None:
    assert to_json({"a": "\x9b日", "b": b"\x00\xff"}) == '{"a":"\\u009b\\u65e5","b":"AP8="}'


def test_a_time_that_is_none_is_shown_as_it_came() -> None:
    assert clock("yesterday\x1b") == "yesterday\\x1b"


def test_counting_words() -> None:
    assert (plural(1, "call"), plural(2, "call")) == ("1 call", "2 calls")
