"""Entries: stored, changed, deleted; what they offered goes with them, and who selected them forgets them."""

from typing import Any

import pytest
from msgspec.structs import replace

from eryxd.api import requests as ask
from eryxd.api.events import EventType
from eryxd.core import entries, sessions
from eryxd.core.change import Ask
from eryxd.core.entries import MAX_ENTRIES_BYTES, MAX_ENTRY_BYTES, Save
from eryxd.core.lists import pattern_list
from eryxd.domain.catalog import SourceAnswer, SourceId
from eryxd.domain.errors import Conflict, Invalid, NotFound, ReadOnly
from eryxd.domain.ids import ProjectId
from eryxd.domain.origin import FileOrigin
from eryxd.domain.pattern import Pattern
from eryxd.domain.providers import EntryId, ProviderEntry
from eryxd.domain.session import SessionHead
from tests.builders import NOON, after, offers, pattern, policy, project, session, source_answer
from tests.core_builders import World, wanted
from tests.requirements import requirement


def entry(id: str = "git", **changes: Any) -> ProviderEntry:
    """Return an entry of the provider `mcp`."""
    made = ProviderEntry(
        provider="mcp",
        id=EntryId(id),
        name=id.title(),
        record={"command": "git-server"},
        created_at=NOON,
        updated_at=NOON,
        revision=1,
    )
    return replace(made, **changes)


GIT = wanted(ask.EntryOf, provider="mcp", id="git")


@requirement("PRN-3")
def test_an_entry_is_stored_announced_and_asked() -> None:
    there = World()
    there.now = after(60)
    change = there.do(entries.save, Save(entry(revision=0), None))
    saved = change.reply.entry

    assert (saved.revision, saved.created_at, saved.updated_at) == (1, after(60), after(60))
    assert [event.type for event in change.events] == [EventType.PROVIDER_SAVED]
    assert change.effects == (Ask(SourceId("mcp:git")),)


@requirement("PRN-3")
def test_an_entry_that_lists_its_tools_answers_and_withdraws_in_the_same_change() -> None:
    """And one that was known for longer keeps its place among the contributions."""
    there = World(
        entry(),
        source_answer("mcp:git", "status", "log"),
        pattern(approval_policy=policy(auto_approved=["status", "log"])),
        offers(providers={"status": ("mcp:git",), "log": ("mcp:git",)}),
    )
    there.now = after(60)
    answer = source_answer("mcp:git", "log", fingerprint="f2")
    change = there.do(entries.save, Save(entry(), 1, answer))

    assert change.reply.pruned == ("status",)
    assert pattern_list(there.head, there.row(Pattern, "p1")).names == ("log",)
    assert there.row(SourceAnswer, "mcp:git").since == NOON
    assert change.reply.entry.revision == 2


@requirement("CAT-8")
def test_tools_that_others_offer_as_well_are_a_warning() -> None:
    there = World(source_answer("mcp:fs", "log"))
    change = there.do(entries.save, Save(entry(), None, source_answer("mcp:git", "log", "status")))

    assert change.reply.warnings == ("log is offered by mcp:fs too; its calls name who runs them",)


@requirement("PAT-3")
@pytest.mark.parametrize("given", [None, 7])
def test_a_stale_draft_is_a_conflict(given: int | None) -> None:
    assert World(entry(revision=3)).refuses(entries.save, Save(entry(), given), Conflict).data["revision"] == 3


@requirement("FIL-1")
@pytest.mark.parametrize("use_case", ["save", "delete"])
def test_what_a_file_defines_is_changed_there(use_case: str) -> None:
    there = World(entry(origin=FileOrigin(file="/home/ada/tools.toml", line=4)))
    error = (
        there.refuses(entries.save, Save(entry(), 1), ReadOnly)
        if use_case == "save"
        else there.refuses(entries.delete, GIT, ReadOnly)
    )

    assert (error.data["file"], error.data["line"]) == ("/home/ada/tools.toml", 4)


@requirement("WIR-6")
def test_entries_have_an_end() -> None:
    too_long = entry(record={"command": "x" * MAX_ENTRY_BYTES})
    World().refuses(entries.save, Save(too_long, None), Invalid)

    size = MAX_ENTRY_BYTES - 1000
    full = [entry(f"e{n}", record={"command": "x" * size}) for n in range(MAX_ENTRIES_BYTES // size)]
    World(*full).refuses(entries.save, Save(entry(record={"command": "x" * size}), None), Invalid)


@requirement("SES-1")
def test_an_entry_of_a_project_that_is_not_there_is_refused() -> None:
    World().refuses(entries.save, Save(entry(project_id=ProjectId("j9")), None), NotFound)


@requirement("PRN-3", "SES-1")
def test_deleting_takes_what_it_alone_offers_off_lists_and_out_of_selections() -> None:
    there = World(
        entry(),
        source_answer("mcp:git", "status", "log"),
        source_answer("mcp:fs", "log"),
        pattern(approval_policy=policy(auto_approved=["status", "log"])),
        offers(providers={"status": ("mcp:git",), "log": ("mcp:git", "mcp:fs")}),
        session(tooling={"mcp": ("git", "fs")}),
    )
    change = there.do(entries.delete, GIT)

    assert change.reply.pruned == ("status",)
    assert EventType.PROVIDER_DELETED in [event.type for event in change.events]
    assert there.row(SessionHead, "s1").tooling == {"mcp": ("fs",)}
    assert pattern_list(there.head, there.row(Pattern, "p1")).names == ("log",)


@requirement("PRN-3")
def test_what_only_an_answer_is_left_of_can_be_forgotten() -> None:
    there = World(source_answer("mcp:git", "status"))
    there.do(entries.delete, GIT)

    assert there.head.get(SourceAnswer, "mcp:git") is None
    there.refuses(entries.delete, GIT, NotFound)


@requirement("SES-1")
def test_a_session_selects_entries_that_it_can_see() -> None:
    """Of the workspace, and of its project; what it had before stays although its file is gone."""
    there = World(
        project(),
        entry(),
        entry("own", project_id=ProjectId("j1")),
        entry("others", project_id=ProjectId("j2")),
        session(tooling={"mcp": ("gone",)}),
    )
    fine = wanted(ask.SessionsUpdateTooling, session_id="s1", tooling={"mcp": ("git", "own", "gone")})
    there.do(sessions.update_tooling, fine)
    assert there.row(SessionHead, "s1").tooling == {"mcp": ("git", "own", "gone")}

    bad = wanted(ask.SessionsUpdateTooling, session_id="s1", tooling={"mcp": ("others", "gti"), "lsp": ("ts",)})
    assert there.refuses(sessions.update_tooling, bad, Invalid).data["problems"] == [
        "tooling.mcp: 'others' belongs to another project",
        "tooling.mcp: there is no entry 'gti'; did you mean 'git'?",
        "tooling.lsp: there is no tool provider of that name, or it has no entries",
    ]
