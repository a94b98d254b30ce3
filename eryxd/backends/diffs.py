"""A unified diff of one changed place, in time linear to the file.

Good for what the tools create and edit do: the general search for a small diff takes minutes on a large file,
and a person waits to see this one.
"""

from typing import Final

CONTEXT_LINES: Final = 3
"""Unchanged lines shown on either side, as diff and git do."""

_NO_END: Final = "\\ No newline at end of file\n"


def unified(path: str, before: str | None, after: str) -> str:
    """Return the diff from `before`, None where there is no file, to `after`; empty when nothing changes.

    Everything between the first and the last changed line is one hunk.
    """
    old, new = split_lines(before or ""), split_lines(after)
    same_start = _common(old, new)
    rest = min(len(old), len(new)) - same_start
    same_end = min(_common(old[::-1], new[::-1]), rest)
    head = f"--- {'/dev/null' if before is None else f'a/{path}'}\n+++ b/{path}\n"
    if same_start == len(old) == len(new):
        return "" if before is not None else head
    return head + _hunk(old, new, same_start, same_end)


def _hunk(old: list[str], new: list[str], same_start: int, same_end: int) -> str:
    first = max(same_start - CONTEXT_LINES, 0)
    trailing = min(same_end, CONTEXT_LINES)
    old_end, new_end = len(old) - same_end, len(new) - same_end
    lines = [
        *(f" {line}" for line in old[first:same_start]),
        *(f"-{line}" for line in old[same_start:old_end]),
        *(f"+{line}" for line in new[same_start:new_end]),
        *(f" {line}" for line in old[old_end : old_end + trailing]),
    ]
    counts = (_range(first, old_end + trailing), _range(first, new_end + trailing))
    body = "".join(line if line.endswith("\n") else f"{line}\n{_NO_END}" for line in lines)
    return f"@@ -{counts[0]} +{counts[1]} @@\n{body}"


def _range(start: int, end: int) -> str:
    # An empty range names the line before it.
    return f"{start + 1 if end > start else start},{end - start}"


def split_lines(text: str) -> list[str]:
    """Split after newlines only, as editors and ripgrep count: a form feed is part of a line."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _common(one: list[str], other: list[str]) -> int:
    """Count the lines that both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
