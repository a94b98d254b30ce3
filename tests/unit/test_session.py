"""Sessions, messages and runs: the three states of the override, automatic titles, stable words."""

from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from msgspec import UNSET

from eryxd.api.replies import SessionView
from eryxd.api.requests import SessionsUpdateApprovalSettings
from eryxd.domain.policy import effective
from eryxd.domain.session import (
    TITLE_LENGTH,
    UNTITLED,
    Role,
    Run,
    RunStatus,
    SessionHead,
    SessionStatus,
    automatic_title,
)
from tests.builders import approval, policy, run, session, session_view, settings
from tests.requirements import requirement
from tests.strategies import long_text

STATES: Final = pytest.mark.parametrize(
    "override", [None, settings(), settings(["view"])], ids=["inherit", "empty", "list"]
)
ABSENT: Final = object()


def over_the_wire(record: Any) -> Any:
    """Return the record as a client of another language reads it: plain values."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record))


@requirement("POL-5")
@STATES
def test_the_three_states_survive_the_store(override: Any) -> None:
    """Inherit, empty and a list come back as they were, in either encoding."""
    mine = session(approval_settings=override)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(mine), type=SessionHead) == mine
    assert msgspec.json.decode(msgspec.json.encode(mine), type=SessionHead) == mine


@requirement("POL-5")
@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (None, ABSENT),
        (settings(), {"auto_approved_tool_names": []}),
        (settings(["view"]), {"auto_approved_tool_names": ["view"]}),
    ],
    ids=["inherit", "empty", "list"],
)
def test_the_three_states_are_distinct_on_the_wire(override: Any, expected: object) -> None:
    """Inherit is absence, never nil; empty is an empty list, never absence."""
    sent = over_the_wire(session(approval_settings=override))

    assert sent.get("approval_settings", ABSENT) == expected


@requirement("POL-5")
@STATES
def test_the_three_states_are_distinct_in_replies(override: Any) -> None:
    """A session with what is joined to it is read back as it was."""
    mine = session_view(approval_settings=override, pending=[approval()])

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(mine), type=SessionView) == mine


@requirement("POL-5")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, UNSET),
        ({"auto_approved_tool_names": []}, ()),
        ({"auto_approved_tool_names": ["view"]}, ("view",)),
    ],
    ids=["clear", "empty", "list"],
)
def test_the_three_states_are_distinct_in_the_request(written: dict[str, Any], expected: Any) -> None:
    """An absent field clears the override; an empty one sets it."""
    sent = msgspec.msgpack.encode({"session_id": "s1", **written})

    request = msgspec.msgpack.decode(sent, type=SessionsUpdateApprovalSettings)

    assert request.auto_approved_tool_names == expected
    assert over_the_wire(request) == {"session_id": "s1", **written}


@requirement("POL-5")
@pytest.mark.parametrize("written", [None, "view", {}, {"view": True}, [None], [b"view"], [1]])
def test_the_request_takes_a_list_of_names_or_nothing(written: object) -> None:
    """Nil above all: is it `clear`, or `empty`?"""
    sent = msgspec.msgpack.encode({"session_id": "s1", "auto_approved_tool_names": written})

    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(sent, type=SessionsUpdateApprovalSettings)


@requirement("POL-5", "POL-9")
@pytest.mark.parametrize("written", [None, {}, [], {"auto_approved_tool_names": None}, {"names": []}])
def test_a_stored_override_of_another_shape_is_refused(written: object) -> None:
    """Reading it as absent would inherit a list that the user had replaced."""
    stored = {**over_the_wire(session()), "approval_settings": written}

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(stored, SessionHead)


@requirement("POL-5", "PRN-4")
@STATES
def test_the_three_states_come_to_three_lists_in_force(override: Any) -> None:
    """After a round trip through the store, too."""
    stored = msgspec.msgpack.encode(session(approval_settings=override))
    mine = msgspec.msgpack.decode(stored, type=SessionHead).approval_settings

    in_force = effective(policy(auto_approved=["glob"]), None if mine is UNSET else mine)

    expected = ("glob",) if override is None else override.auto_approved_tool_names
    assert in_force.auto_approved_tool_names == expected


@requirement("APR-2")
def test_waiting_is_not_a_status() -> None:
    """The session stays `running`; what waits is joined beside it."""
    assert set(SessionStatus) == {"idle", "running", "error"}
    assert "pending_approval" not in SessionHead.__struct_fields__
    assert {"pending_approval", "pending_approval_queue"} <= set(SessionView.__struct_fields__)


@requirement("RUN-2")
def test_a_run_survives_the_store_whole() -> None:
    """With its frozen policy and the agents as they were."""
    mine = run()

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(mine), type=Run) == mine


@requirement("POL-6", "POL-9")
@pytest.mark.parametrize("missing", ["rules", "auto_approved_tool_names", "list_from"])
def test_a_stored_run_without_a_whole_policy_is_refused(missing: str) -> None:
    """A frozen policy with a hole in it is not read as a narrower or wider one."""
    stored = over_the_wire(run())
    del stored["approval_policy"][missing]

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(stored, Run)


@requirement("RUN-2")
def test_words_of_runs_and_roles_are_stable() -> None:
    """They are stored, and clients branch on them."""
    assert set(RunStatus) == {"running", "completed", "error", "cancelled"}
    assert set(Role) == {"user", "assistant", "system"}


@requirement("SES-2")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Mend the parser", "Mend the parser"),
        ("  Mend   the\tparser  ", "Mend the parser"),
        ("Mend the parser\nIt drops the last line.", "Mend the parser"),
        ("\n\n  Mend the parser\nIt drops the last line.", "Mend the parser"),
        ("Mend the parser\r\nIt drops the last line.", "Mend the parser"),
        (" \n ", UNTITLED),
        ("x" * TITLE_LENGTH, "x" * TITLE_LENGTH),
        ("x" * (TITLE_LENGTH + 1), "x" * (TITLE_LENGTH - 1) + "…"),
        ("word " * 20, "word word word word word word word word word word word…"),
    ],
)
def test_a_title_is_the_first_line_with_words_cut_at_a_word(content: str, expected: str) -> None:
    """A blank line is no title."""
    assert automatic_title(content) == expected


@requirement("SES-2")
@given(content=long_text)
def test_a_title_is_one_line_that_fits(content: str) -> None:
    """Whatever was written."""
    title = automatic_title(content)

    assert title
    assert len(title) <= TITLE_LENGTH
    assert title == " ".join(title.split())
