"""The laws at the top of `eryxd.domain.approval`, each as a property."""

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from eryxd.domain.approval import (
    SHOWN_BYTES,
    Approval,
    ApprovalStatus,
    Permission,
    brief,
    cut_middle,
    digest,
    message_content,
    resolve,
    shown_messages,
    shown_permission,
    tool_content,
    whole_messages,
)
from eryxd.domain.errors import ApprovalNotActive
from eryxd.domain.session import Withheld
from tests.builders import after
from tests.requirements import requirement
from tests.strategies import (
    Ending,
    endings,
    long_text,
    pending_approvals,
    permissions,
    withheld_lists,
)

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
"""Texts beyond the cap are needed here, and their length must not hide what a failing test has to say."""


def end(approval: Approval, ending: Ending) -> Approval:
    """Resolve an approval in a generated way."""
    return resolve(approval, ending.status, ending.resolution, after(1), ending.by, ending.note)


def content_digest(content: bytes) -> str:
    """Return the digest of an approval that differs from others in its content only."""
    return digest(UNSET, UNSET, UNSET, content)


@requirement("APR-4")
@given(approval=pending_approvals, first=endings, second=endings)
def test_an_approval_is_resolved_once(approval: Approval, first: Ending, second: Ending) -> None:
    """Whoever comes second is told what the first decided, and nothing changes."""
    done = end(approval, first)

    with pytest.raises(ApprovalNotActive) as late:
        end(done, second)

    assert late.value.data["status"] == first.status
    assert late.value.data["same_decision"] is (first.status is second.status)


@requirement("APR-3", "APR-4")
@given(approval=pending_approvals, ending=endings)
def test_resolving_changes_nothing_but_the_outcome(approval: Approval, ending: Ending) -> None:
    """What was asked, when, and its digest stay."""
    done = end(approval, ending)
    reopened = replace(
        done,
        status=ApprovalStatus.PENDING,
        resolved_at=UNSET,
        resolution=UNSET,
        resolved_by=UNSET,
        note=UNSET,
    )

    assert reopened == approval


@requirement("APR-1", "APR-7")
@given(approval=pending_approvals, ending=st.none() | endings)
def test_a_brief_carries_neither_what_is_withheld_nor_the_permissions_content(
    approval: Approval, ending: Ending | None
) -> None:
    """Pending or resolved.  Everything else of the approval is in it."""
    whole = approval if ending is None else end(approval, ending)

    short = brief(whole)

    assert short.messages is UNSET
    assert short.permission is UNSET
    assert replace(short, messages=whole.messages, permission=whole.permission) == whole


@requirement("APR-1")
@given(one=permissions, two=permissions)
def test_the_digest_covers_a_permission_whole(one: Permission, two: Permission) -> None:
    """Equal content, equal digest; any difference shows, also one that is cut from what is shown."""
    same = content_digest(tool_content(one)) == content_digest(tool_content(two))

    assert same == (msgspec.to_builtins(one) == msgspec.to_builtins(two))


@requirement("APR-1")
@given(permission=permissions, insertion=st.sampled_from(("!", "é")))
def test_a_difference_in_what_is_cut_out_changes_the_digest(permission: Permission, insertion: str) -> None:
    """Two commands that look the same in what is shown are not the same approval."""
    half = "x" * SHOWN_BYTES
    one = replace(permission, command=half + half)
    two = replace(permission, command=half + insertion + half[len(insertion.encode()) :])

    assert replace(shown_permission(one), command="") == replace(shown_permission(two), command="")
    assert content_digest(tool_content(one)) != content_digest(tool_content(two))


@requirement("APR-1")
@given(rows=withheld_lists)
def test_the_digest_covers_messages_whole(rows: list[Withheld]) -> None:
    """Leaving out a single one shows."""
    whole = content_digest(message_content(whole_messages(rows)))

    for index in range(len(rows)):
        fewer = rows[:index] + rows[index + 1 :]
        assert content_digest(message_content(whole_messages(fewer))) != whole


@requirement("APR-1")
@given(permission=permissions)
def test_cutting_a_permission_never_changes_its_digest(permission: Permission) -> None:
    """What fits is shown as it is; what is cut is said to be, so that nobody takes it for the whole."""
    shown = shown_permission(permission)

    same = content_digest(tool_content(shown)) == content_digest(tool_content(permission))

    assert same == (shown.truncated is UNSET)


@requirement("APR-1")
@given(permission=permissions)
def test_a_shown_permission_keeps_to_the_cap(permission: Permission) -> None:
    """Whichever fields are long."""
    shown = shown_permission(permission)

    assert len(msgspec.msgpack.encode(shown)) <= SHOWN_BYTES
    assert shown.kind == permission.kind


@requirement("APR-1")
@given(rows=withheld_lists)
def test_shown_messages_keep_to_the_cap_and_count_what_is_missing(rows: list[Withheld]) -> None:
    """Every message is there, in order, with its id, author and kind."""
    messages, truncated = shown_messages(rows)

    assert [(one.id, one.author_name, one.kind) for one in messages] == [
        (row.id, row.author_name, row.kind) for row in rows
    ]
    assert sum(len(one.content.encode()) for one in messages) <= SHOWN_BYTES
    if truncated is UNSET:
        assert [one.content for one in messages] == [row.content for row in rows]


@requirement("APR-1")
@given(text=long_text, limit=st.integers(0, 2000))
def test_cutting_keeps_to_the_limit_and_counts_what_is_gone(text: str, limit: int) -> None:
    """The ends of the text around one mark, never half a character."""
    cut, gone = cut_middle(text, limit)

    assert len(cut.encode()) <= max(limit, len("…".encode()))
    if gone == 0:
        assert cut == text
    else:
        kept = len(text.encode()) - gone
        heads = [at for at, letter in enumerate(cut) if letter == "…"]
        assert len(cut.encode()) == kept + len("…".encode())
        assert any(text.startswith(cut[:at]) and text.endswith(cut[at + 1 :]) for at in heads)
