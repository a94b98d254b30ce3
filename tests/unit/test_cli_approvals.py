"""`eryx approvals` over a real socket: short ids, digests, late answers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eryxd.api.errors import EXIT_STATUS
from eryxd.cli.approvals import _resolved
from eryxd.cli.text import Look, clock, columns
from eryxd.domain.errors import ErrorCode
from tests import builders
from tests.fakes import Reply, refuse, wire
from tests.requirements import requirement
from tests.unit.cli_stage import FIRST, ME, SECOND, SESSION, THIRD, Start, daemons, eryx, session_reply, shown


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Start]:
    yield from daemons(tmp_path)


def approvals_of(*ids: str) -> Callable[[dict[str, Any]], Any]:
    """Return what lists these as waiting and has resolved none."""
    rows = [wire(builders.approval(id, session_id=SESSION)) for id in ids]
    return lambda params: {"approvals": [] if params.get("resolved") else rows}


def resolved(params: dict[str, Any]) -> dict[str, Any]:
    record = builders.approval(params["approval_id"], session_id=SESSION, status=params["decision"], permission=None)
    return {"approval": wire(record), "released": [], "session": wire(builders.session_view(SESSION)), "seq": 5}


def too_late(same: bool) -> Reply:
    def reply(params: dict[str, Any]) -> Any:
        raise refuse(
            "approval_not_active",
            "Too late.",
            status="approved",
            resolution="user",
            resolved_at=builders.NOON,
            resolved_by=ME,
            same_decision=same,
        )

    return reply


@requirement("CLI-6", "APR-4")
def test_approving_sends_back_the_digest_that_was_shown(daemon: Start) -> None:
    fake = daemon(approvals__list=approvals_of(FIRST, SECOND), approvals__get=shown, approvals__resolve=resolved)

    result = eryx(fake, "approvals", "approve", "a7k2", "--note", "once", "--remember")

    assert (result.exit_code, result.stdout) == (0, "✓ approved  a7k2aaaa  shell make test\n")
    assert fake.arguments("approvals.resolve") == [
        {
            "session_id": SESSION,
            "approval_id": FIRST,
            "decision": "approved",
            "digest": "d" * 64,
            "note": "once",
            "remember": "session",
        }
    ]


@requirement("CLI-6")
def test_several_are_decided_in_turn_and_a_whole_id_needs_no_list(daemon: Start) -> None:
    fake = daemon(approvals__get=shown, approvals__resolve=resolved)

    result = eryx(fake, "approval", "reject", FIRST, SECOND, FIRST)

    assert result.exit_code == 0
    assert [asked["approval_id"] for asked in fake.arguments("approvals.resolve")] == [FIRST, SECOND]
    assert {asked["decision"] for asked in fake.arguments("approvals.resolve")} == {"rejected"}


@requirement("CLI-3")
def test_a_slip_in_one_id_decides_nothing(daemon: Start) -> None:
    fake = daemon(approvals__list=approvals_of(FIRST), approvals__get=shown, approvals__resolve=resolved)

    result = eryx(fake, "approvals", "approve", "a7k2", "zzzz")

    assert result.exit_code == EXIT_STATUS[ErrorCode.NOT_FOUND]
    assert result.stderr == "eryx: No approval begins with 'zzzz'.\ntry: eryx approvals list\n"
    assert fake.arguments("approvals.resolve") == []


@requirement("CLI-3")
def test_a_prefix_of_several_ids_is_refused_naming_them(daemon: Start) -> None:
    fake = daemon(approvals__list=approvals_of(FIRST, THIRD), approvals__get=shown)

    result = eryx(fake, "approvals", "show", "a7k2")

    assert result.exit_code == 64
    assert "a7k2a, a7k2b" in result.stderr


@requirement("CLI-6", "APR-4")
@pytest.mark.parametrize(("same", "status"), [(True, 0), (False, EXIT_STATUS[ErrorCode.APPROVAL_NOT_ACTIVE])])
def test_a_late_answer_says_who_decided_and_how_the_session_stands(daemon: Start, same: bool, status: int) -> None:
    fake = daemon(
        approvals__get=shown, approvals__resolve=too_late(same), sessions__get=session_reply(status="running")
    )

    result = eryx(fake, "approvals", "approve", FIRST)

    assert result.exit_code == status
    assert (result.stderr if status else result.stdout).splitlines() == [
        f"a7k2aaaa was already approved by you (other pid 9) at {clock(builders.NOON)}",
        "session sxxxxxxx: running",
    ]


@requirement("CLI-6")
def test_the_first_failure_of_several_gives_the_status_and_the_others_are_decided(daemon: Start) -> None:
    def second_fails(params: dict[str, Any]) -> Any:
        if params["approval_id"] == FIRST:
            raise refuse("conflict", "It changed.", next=f"eryx approvals show {FIRST}")
        return resolved(params)

    fake = daemon(approvals__get=shown, approvals__resolve=second_fails)

    result = eryx(fake, "approvals", "approve", FIRST, SECOND)

    assert result.exit_code == EXIT_STATUS[ErrorCode.CONFLICT]
    assert result.stderr == f"eryx: It changed.\ntry: eryx approvals show {FIRST}\n"
    assert "a7k3aaaa" in result.stdout


@requirement("APR-1")
def test_the_whole_content_is_read_page_by_page(daemon: Start) -> None:
    body = json.dumps({"command": "x" * 30}).encode()

    def page(params: dict[str, Any]) -> Any:
        offset = params["offset"]
        more = {"next_offset": offset + 20} if offset + 20 < len(body) else {}
        return {"body": body[offset : offset + 20], "total": len(body), **more}

    result = eryx(daemon(approvals__content=page), "approvals", "show", FIRST, "--full")

    assert result.stdout == f"command\n  │ {'x' * 30}\n"


@requirement("APR-1")
def test_a_list_says_what_would_be_done(daemon: Start) -> None:
    def whole(params: dict[str, Any]) -> Any:
        reply = shown(params)
        if params["approval_id"] == SECOND:
            arguments = {"pattern": "TODO", "path": "src"}
            search = builders.permission(command=None, path="src", arguments=arguments)
            reply["approval"] |= {"tool_name": "rg", "permission": wire(search)}
        return reply

    fake = daemon(approvals__list=approvals_of(FIRST, SECOND), approvals__get=whole)

    assert [line.split("  ")[-1] for line in eryx(fake, "approvals", "list").stdout.splitlines()] == [
        "shell make test",
        "rg TODO in src",
    ]


@requirement("APR-1")
def test_a_list_of_what_was_decided_says_by_whom_and_how(daemon: Start) -> None:
    by_me = builders.approval(FIRST, status="approved", resolution="user", resolved_by=builders.decider(uid=7))
    late = builders.approval(SECOND, status="rejected", resolution="expired")
    fake = daemon(approvals__list=lambda _: {"approvals": wire([by_me, late])})

    lines = eryx(fake, "approvals", "list", "--resolved").stdout.splitlines()

    assert lines[0].startswith("a7k2  ✓ approved  ")
    assert "  by uid 7 (eryx pid 4321)  " in lines[0]
    assert "  because nobody answered in time  " in lines[1]


def test_what_was_approved_is_one_line_that_fits_the_terminal() -> None:
    record = wire(builders.approval(FIRST, permission=builders.permission(command="echo one\n" * 50)))
    reply = {"approval": {**record, "status": "approved"}, "released": [], "session": wire(builders.session_view())}

    lines = _resolved(record, reply, Look(width=60))

    assert len(lines) == 1
    assert columns(lines[0]) == 60
    assert lines[0].startswith("✓ approved  a7k2aaaa  shell echo one\\necho one")
