"""Outcomes in short, and the type of what runs a tool."""

from collections.abc import Callable

from eryxd.plugin.types import ToolOutcome

Run = Callable[..., ToolOutcome]


def ok(text: str) -> ToolOutcome:
    return ToolOutcome(ok=True, text=text)


def failed(text: str) -> ToolOutcome:
    return ToolOutcome(ok=False, text=text)
