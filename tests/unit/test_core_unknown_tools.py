"""Ids that the catalog does not have: refused with what may be meant, or kept while a source is silent."""

import pytest

from eryxd.api import requests as ask
from eryxd.api.replies import SourceState
from eryxd.core import patterns, sessions
from eryxd.domain.catalog import SourceId, SourceStatus
from eryxd.domain.errors import Invalid
from eryxd.domain.session import SessionHead
from eryxd.domain.tools import ToolKind
from tests.builders import pattern, policy, settings, tool
from tests.core_builders import World, wanted, world
from tests.requirements import requirement


def silent(there: World, status: SourceStatus) -> World:
    """Let a source be pending or failed, and the catalog have but one tool."""
    source = SourceId("mcp:git")
    state = SourceState(id=source, name="Git", kind=ToolKind.MCP, status=status, reason="it does not start")
    there.sources = {source: state}
    there.offers(tool("view"))
    return there


@requirement("VAL-2")
@pytest.mark.parametrize("status", [SourceStatus.PENDING, SourceStatus.FAILED])
def test_while_a_source_is_silent_a_list_keeps_what_it_holds(status: SourceStatus) -> None:
    """Its own, and what it inherits; anything else is refused, naming who did not answer."""
    there = silent(world(listed=["edit", "view"], own=["shell"]), status)
    edited = wanted(
        ask.SessionsUpdateApprovalSettings, session_id="s1", auto_approved_tool_names=("view", "shell", "edit")
    )
    change = there.do(sessions.update_approval_settings, edited)

    assert there.row(SessionHead, "s1").approval_settings == settings(["view", "shell", "edit"])
    assert change.reply.warnings == tuple(
        f"auto_approved_tool_names: '{name}' is kept; nobody offers it now, and mcp:git did not answer"
        for name in ("shell", "edit")
    )
    more = wanted(ask.SessionsUpdateApprovalSettings, session_id="s1", auto_approved_tool_names=("vew",))
    error = there.refuses(sessions.update_approval_settings, more, Invalid)
    assert error.data["problems"] == [
        "auto_approved_tool_names: there is no tool 'vew'; did you mean 'view'? (mcp:git did not answer)"
    ]


@requirement("VAL-2")
def test_with_every_source_answered_nothing_unknown_is_kept() -> None:
    there = world(listed=["edit"], own=["shell"])
    there.offers(tool("view"))
    same = wanted(ask.SessionsUpdateApprovalSettings, session_id="s1", auto_approved_tool_names=("shell",))

    there.refuses(sessions.update_approval_settings, same, Invalid)


@requirement("VAL-2")
def test_a_pattern_can_be_edited_while_a_source_is_silent() -> None:
    there = silent(world(listed=["edit"]), SourceStatus.FAILED)
    old = pattern(approval_policy=policy(auto_approved=["edit", "view"]))
    draft = ask.PatternDraft(
        id=old.id, name="Coding", mode=old.mode, agents=old.agents, approval_policy=old.approval_policy, revision=1
    )
    change = there.do(patterns.save, ask.PatternsSave(pattern=draft))

    assert any("'edit' is kept" in warning for warning in change.reply.warnings)


@requirement("CAT-8")
def test_an_id_that_several_offer_is_a_warning_on_a_list() -> None:
    there = world()
    there.offers(tool("view", providers=["builtin:view", "mcp:fs"]))
    both = wanted(ask.SessionsUpdateApprovalSettings, session_id="s1", auto_approved_tool_names=("view",))
    change = there.do(sessions.update_approval_settings, both)

    assert change.reply.warnings == (
        "auto_approved_tool_names: 'view' is offered by builtin:view, mcp:fs; all of them are approved",
    )
