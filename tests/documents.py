"""The documents as tests see them: blocks of code, links, words in backticks, and the commands among them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]

DOCUMENTS: Final = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("contrib/**/*.md"), *ROOT.glob("plugins/*/*.md")]
)

PROMPT: Final = "$ "
"""What a command begins with in a block of `console`."""

_FENCE: Final = re.compile(r"^```(\w*)(?: title=(\S+))?$")
_SPAN: Final = re.compile(r"``(.+?)``|`([^`]+)`")
_LINK: Final = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$")


class Block(NamedTuple):
    """One fenced block.  `title` names the file that a reader saves it as; `line` is where it begins."""

    language: str
    title: str
    lines: tuple[str, ...]
    line: int

    @property
    def text(self) -> str:
        """Return the lines as a file holds them."""
        return "".join(f"{line}\n" for line in self.lines)


class Step(NamedTuple):
    """One command of a console block with the output that the document shows."""

    command: str
    output: tuple[str, ...]
    line: int


def shown(path: Path) -> str:
    """Return a file's place in the checkout."""
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a document in order."""
    opened: re.Match[str] | None = None
    inside: list[str] = []
    start = 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if opened is None:
            opened, inside, start = _FENCE.match(line), [], number
        elif line == "```":
            yield Block(opened[1], opened[2] or "", tuple(inside), start)
            opened = None
        else:
            inside.append(line)
    assert opened is None, f"{shown(path)}:{start}: the block does not end"


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a document that are in no block."""
    within = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("```"):
            within = not within
        elif not within:
            yield number, line


def steps(block: Block) -> Iterator[Step]:
    """Yield the commands of a console block, each with what it prints."""
    command, output, start = "", list[str](), 0
    for number, line in enumerate(block.lines, block.line + 1):
        if line.startswith(PROMPT):
            if command:
                yield Step(command, tuple(output), start)
            command, output, start = line.removeprefix(PROMPT), [], number
        else:
            output.append(line)
    if command:
        yield Step(command, tuple(output), start)


def spans(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what stands in backticks, with its line."""
    for number, line in prose(path):
        for match in _SPAN.finditer(line):
            yield number, (match[1] or match[2]).strip()


def links(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the targets of links, with their line; what stands in backticks is no link."""
    for number, line in prose(path):
        for match in _LINK.finditer(_SPAN.sub("", line)):
            yield number, match[1]


def anchors(path: Path) -> set[str]:
    """Return what the headings of a document can be linked to as, the way GitHub spells it."""
    found = set()
    for _, line in prose(path):
        if match := _HEADING.match(line):
            words = re.sub(r"[^\w\- ]", "", match[1].lower())
            found.add(words.strip().replace(" ", "-"))
    return found


def eryx_commands(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the words of every `eryx` command that a document shows, in blocks and in backticks."""
    lines = [(step.line, step.command) for block in blocks(path) for step in steps(block)]
    for number, text in [*lines, *spans(path)]:
        for part in re.split(r"\s*(?:&&|\|\||[|;])\s*", text):
            if part.startswith("eryx ") and "…" not in part:
                yield number, shlex.split(part)[1:]
