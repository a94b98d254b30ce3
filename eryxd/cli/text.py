"""Text for a terminal: what came from elsewhere is made harmless, then laid out.

Laws: `visible` leaves nothing that a terminal could obey or that a person could not see, and is idempotent on
its own output; a line of `block` is never wider than the terminal, so foreign text cannot reach the margin.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TextIO

_SGR: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0]|[\U000e0100-\U000e01ef]"
)
"""Characters that count as printable and show nothing: fillers, joiners, variation selectors."""

_WORDS: Final = re.compile("\ufe0f(?<=[^\x00-\xff\ufe0f]\ufe0f)")
"""The selector that asks for an emoji, right after a character that can be one."""

_ESCAPE: Final = re.compile("\x1b\\[[0-9;]*m")

_IDEOGRAPHIC_SPACE: Final = "\u3000"

RULE: Final = "  │ "
"""What every line of foreign text starts with."""


class Look(NamedTuple):
    """What the output can show: colour, and `width` columns (0: no terminal, lines are left whole)."""

    colour: bool = False
    width: int = 0

    def paint(self, style: str, text: str) -> str:
        """Return the text in a style of `_SGR` where there is colour."""
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m" if self.colour and text else text


PLAIN: Final = Look()


def look(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Look:
    """Return what a stream can show: colour on a terminal, unless `NO_COLOR` or `TERM=dumb` says otherwise."""
    if not stream.isatty():
        return PLAIN
    colour = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    try:
        width = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        width = 0
    return Look(colour=colour, width=width)


def here() -> Look:
    """Return what standard output can show."""
    return look(sys.stdout)


def visible(text: object, *, lines: bool = False) -> str:
    r"""Return text in which controls, directions and invisible characters are spelt out: `\x1b`, `\u202e`.

    With `lines`, line feeds stay and tabs become spaces; without, both are spelt out as well.
    """
    string = str(text)
    if lines:
        return "\n".join(_spelt(line.expandtabs(4)) for line in string.split("\n"))
    return _spelt(string)


def _spelt(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    shown = {match.start() for match in _WORDS.finditer(text)}
    return "".join(_spell(mark) if index not in shown else mark for index, mark in enumerate(text))


def _spell(mark: str) -> str:
    if mark == _IDEOGRAPHIC_SPACE or (mark.isprintable() and mark != "\ufe0f" and not _UNSEEN.match(mark)):
        return mark
    return mark.encode("unicode_escape").decode("ascii")


def columns(text: str) -> int:
    """Return how many columns a line takes: wide characters count two, our own colours nothing."""
    plain = _ESCAPE.sub("", text)
    if plain.isascii():
        return len(plain)
    return sum(_cell(mark) for mark in plain)


def _cell(mark: str) -> int:
    if mark.isascii():
        return 1
    import unicodedata

    return 2 if unicodedata.east_asian_width(mark) in "WF" else 1


def cut(text: object, width: int) -> str:
    """Return foreign text as one line of at most `width` columns (0: no limit), with `…` where it was cut."""
    line = visible(text)
    if not width or columns(line) <= width:
        return line
    return _fitting(line, width - 1) + "…"


def _fitting(line: str, width: int) -> str:
    used = 0
    for index, mark in enumerate(line):
        used += _cell(mark)
        if used > width:
            return line[:index]
    return line


def block(text: str, look: Look, rule: str = RULE) -> list[str]:
    """Return foreign text as lines behind a rule, folded to the terminal."""
    room = max(look.width - len(rule), 8) if look.width else 0
    shown = visible(text.rstrip("\n"), lines=True)
    return [rule + part for line in shown.split("\n") for part in _folded(line, room)]


def _folded(line: str, room: int) -> Iterable[str]:
    # One pass: an agent's message of a megabyte may be a single line.
    start = used = 0
    for index, mark in enumerate(line if room else ""):
        width = _cell(mark)
        if used + width > room:
            yield line[start:index]
            start, used = index, 0
        used += width
    yield line[start:]


def table(rows: Sequence[Sequence[str]], look: Look = PLAIN) -> list[str]:
    """Return rows in columns two spaces apart; cells are already visible.  The last column is cut at the terminal."""
    if not rows:
        return []
    widths = [max(columns(row[index]) for row in rows) for index in range(len(rows[0]) - 1)]
    return [_row(row, widths, look) for row in rows]


def _row(row: Sequence[str], widths: Sequence[int], look: Look) -> str:
    padded = [cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=False)]
    start = "  ".join([*padded, ""])
    room = look.width - columns(start)
    last = row[-1]
    if look.width and 8 <= room < columns(last) and not _ESCAPE.search(last):
        last = cut(last, room)
    return (start + last).rstrip()


def listed(lines: Sequence[str], nothing: str, reply: Mapping[str, Any]) -> list[str]:
    """Return the lines of a list, or a sentence when there are none; a last one says how to see more."""
    if not lines:
        return [nothing]
    more = [f"more: --cursor {visible(reply['cursor'])}"] if reply.get("cursor") else []
    return [*lines, *more]


def clock(timestamp: str) -> str:
    """Return the local time of day of an RFC 3339 timestamp, to the second."""
    return _local(timestamp, "%H:%M:%S")


def seconds(since: str, until: str) -> float:
    """Return how long it is from one RFC 3339 timestamp to another, 0 when one of them is none."""
    import datetime

    try:
        return (datetime.datetime.fromisoformat(until) - datetime.datetime.fromisoformat(since)).total_seconds()
    except (TypeError, ValueError):
        return 0.0


def date(timestamp: str) -> str:
    """Return the local date and time of an RFC 3339 timestamp, to the minute."""
    return _local(timestamp, "%Y-%m-%d %H:%M")


def _local(timestamp: str, form: str) -> str:
    import datetime

    try:
        return datetime.datetime.fromisoformat(timestamp).astimezone().strftime(form)
    except ValueError:
        return visible(timestamp)


def plural(count: int, noun: str) -> str:
    """Return `1 call`, `2 calls`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
