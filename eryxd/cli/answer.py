"""Asking a person in place: shows an approval, takes a key, sends the decision with the digest of what was shown.

Source: APR-4, APR-6.
"""

from collections.abc import Callable
from typing import Any, Final

from eryxd.cli import render_approvals as approvals
from eryxd.cli.feed import Feed
from eryxd.cli.refs import shorten
from eryxd.cli.report import fail
from eryxd.cli.terminal import Closed, Terminal
from eryxd.cli.text import Look, block, cut, plural
from eryxd.client.client import Client, ClientError, RemoteError
from eryxd.domain.errors import ErrorCode

SHOWN_LINES: Final = 20
"""How much of a call or of messages is shown before `s` is pressed: it fits a terminal with the question."""

LAST_LINES: Final = 8
"""How many of them are from the end, where the one that matters may stand."""

Reply = dict[str, Any]


class Asker:
    """Asks about one approval after the other.

    `take` takes in what has happened and returns it as lines; `waits` says whether an approval is still open;
    `command` is how eryx is called from another terminal.
    """

    def __init__(
        self,
        client: Client,
        terminal: Terminal,
        look: Look,
        feed: Feed,
        take: Callable[[], list[str]],
        waits: Callable[[str], bool],
        command: str = "eryx",
    ) -> None:
        self._client = client
        self._terminal = terminal
        self._look = look
        self._feed = feed
        self._take = take
        self._waits = waits
        self._command = command
        self._hidden = 0

    def ask(self, id: str) -> None:
        """Ask until the approval is decided, here or elsewhere, or put off."""
        reply = self._fetch(id)
        while reply is not None and reply["approval"]["status"] == "pending":
            try:
                key = self._key(id, reply)
            except Closed:
                key = "l"
            reply = None if key is None else self._act(key, id, reply)

    def _fetch(self, id: str) -> Reply | None:
        reply: Reply = self._client.call("approvals.get", approval_id=id)
        if reply["approval"]["status"] == "pending":
            self._show(reply)
        return reply

    def _show(self, reply: Reply) -> None:
        approval, look = reply["approval"], self._look
        title = f"{approvals.WAITING} {cut(approval['title'], max(look.width - 24, 0))}"
        self._say(look.paint("yellow", title) + approvals.place(reply))
        if approval.get("detail"):
            for line in block(approval["detail"], look, rule="  "):
                self._say(line)
        lines = approvals.content(approval, look)
        self._hidden = max(len(lines) - SHOWN_LINES, 0)
        head, tail = (SHOWN_LINES - LAST_LINES, len(lines) - LAST_LINES) if self._hidden else (len(lines), len(lines))
        for line in lines[:head]:
            self._say(line)
        if self._hidden:
            self._say(look.paint("yellow", f"  … {plural(self._hidden, 'line')} not shown: press s"))
        for line in lines[tail:]:
            self._say(line)
        if approvals.can_remember(reply):
            self._say(look.paint("dim", f"  with A, {approvals.remember(reply)}"))

    def _key(self, id: str, reply: Reply) -> str | None:
        """Return the next key, or None when somebody else decided meanwhile."""
        self._terminal.settle()
        self._terminal.show(self._question(reply))
        while (key := self._terminal.key(self._feed)) is None:
            # Most events add nothing to say; the question then stays where it is.
            try:
                lines = self._take()
            except ClientError:
                self._say("")
                raise
            waits = self._waits(id)
            if lines or not waits:
                self._say("")
            for line in lines:
                self._say(line)
            if not waits:
                return None
            if lines:
                self._terminal.show(self._question(reply))
        self._say(key if key.isprintable() else "")
        return key

    def _question(self, reply: Reply) -> str:
        keys = ["[a]pprove", "[r]eject", "[s]how all", "[l]ater"]
        if approvals.can_remember(reply):
            keys.insert(1, "[A]pprove and remember for this session")
        return "  " + "  ".join(keys) + " > "

    def _act(self, key: str, id: str, reply: Reply) -> Reply | None:
        """Do what a key says.  Return what to ask about next, or None when this one is done with."""
        match key:
            case "A" if not approvals.can_remember(reply):
                return reply
            case "a" | "A" if (unseen := self._unseen(reply)) and not self._approves(unseen):
                return reply
            case "a":
                return self._resolve(reply, "approved")
            case "A":
                return self._resolve(reply, "approved", remember="session")
            case "r":
                note = self._terminal.line("  note for the agent (Enter: none, Ctrl-D: back) > ")
                return reply if note is None else self._resolve(reply, "rejected", note=note or None)
            case "s":
                for line in approvals.approval(reply, self._look):
                    self._say(line)
                self._hidden = 0
            case "l":
                self._say(f"  later: {self._command} approvals approve {shorten([id])[id]}")
                return None
        return reply

    def _unseen(self, reply: Reply) -> str:
        """Say how much was not shown, by us or because the daemon cut it; nothing when all was."""
        missing = approvals.missing_bytes(reply["approval"])
        counts = [plural(count, noun) for count, noun in ((self._hidden, "line"), (missing, "byte")) if count]
        were = "was" if self._hidden + missing == 1 else "were"
        return f"{' and '.join(counts)} {were} not shown" if counts else ""

    def _approves(self, unseen: str) -> bool:
        """Ask whether to approve what was shown in part."""
        answer = self._terminal.line(f"  {unseen}.  Approve anyway? [y/N] > ")
        return (answer or "").lower() in ("y", "yes")

    def _resolve(self, reply: Reply, decision: str, **more: str | None) -> Reply | None:
        approval = reply["approval"]
        try:
            self._client.call(
                "approvals.resolve",
                session_id=approval["session_id"],
                approval_id=approval["id"],
                decision=decision,
                digest=approval["digest"],
                **more,
            )
        except RemoteError as refusal:
            if refusal.code == ErrorCode.APPROVAL_NOT_ACTIVE:
                self._say(f"  already {approvals.decided(refusal.data)}")
                return None
            fail(refusal, False)
            return self._fetch(approval["id"])
        return None

    def _say(self, line: str) -> None:
        self._terminal.show(line + "\n")
