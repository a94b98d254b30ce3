"""From a request on a connection to its answer: guard, arguments, use case.

Law: the guard stands before everything else, once, here; every method of the table has exactly one server.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from eryxd.api import replies as out, requests as ask
from eryxd.api.access import Access
from eryxd.api.events import Topic
from eryxd.api.methods import METHODS, Method
from eryxd.core import approvals, audit, patterns, sessions
from eryxd.core.change import Tx
from eryxd.daemon import actions, clock, guard, reads, tooling
from eryxd.daemon.bus import MAX_QUEUED_BYTES, Subscription
from eryxd.daemon.connection import Connection
from eryxd.daemon.daemon import Caller, Daemon
from eryxd.daemon.guard import NO_NEW_PRIVS, Peer
from eryxd.domain.errors import EryxError, ForbiddenPeer, Internal, Invalid, JournalGap, ShuttingDown, UnknownMethod
from eryxd.domain.ids import SessionId
from eryxd.domain.session import SessionHead
from eryxd.wire.peer import Request, decode_params, encode_event

log = logging.getLogger("eryxd.dispatch")

USE_CASES: Final[Mapping[str, Callable[[Tx, Any], Any]]] = {
    "patterns.copy": patterns.copy,
    "patterns.delete": patterns.delete,
    "patterns.favorite": patterns.favorite,
    "sessions.create": sessions.create,
    "sessions.duplicate": sessions.duplicate,
    "sessions.rename": sessions.rename,
    "sessions.pin": sessions.pin,
    "sessions.archive": sessions.archive,
    "sessions.update_tooling": sessions.update_tooling,
    "sessions.revoke": sessions.revoke,
    "approvals.resolve": approvals.resolve,
}
"""Computed at once and answered after the commit."""

READS: Final[Mapping[str, Callable[[Daemon, Any], Any]]] = {
    "ping": reads.ping,
    "api.describe": reads.api_describe,
    "daemon.status": reads.status,
    "projects.list": reads.projects,
    "patterns.list": reads.pattern_list,
    "patterns.get": reads.pattern_get,
    "tools.list": tooling.offered,
    "tools.explain": tooling.explain_tools,
    "plugins.list": tooling.list_plugins,
    "providers.list": tooling.list_providers,
    "providers.get": tooling.get_entry,
    "sessions.list": reads.sessions,
    "sessions.get": reads.session_get,
    "runs.get": reads.run_get,
    "approvals.get": reads.approval_get,
    "approvals.content": reads.approval_content,
    "workspace.get": reads.workspace,
}
"""Answered at once, from memory."""

WAITING_READS: Final[Mapping[str, Callable[[Daemon, Any], Awaitable[Any]]]] = {
    "capabilities.describe": reads.capabilities,
    "patterns.validate": tooling.validate_pattern,
    "tools.stale": tooling.stale,
    "sessions.search": reads.search,
    "messages.list": reads.messages,
    "runs.list": reads.run_list,
    "runs.wait": reads.run_wait,
    "approvals.list": reads.approval_list,
    "timeline.get": reads.timeline,
    "store.check": reads.store_check,
}
"""Answered when another thread has read, or when something has happened."""

ACTIONS: Final[Mapping[str, Callable[[Daemon, Caller, Any], Awaitable[Any]]]] = {
    "capabilities.refresh": actions.refresh,
    "patterns.save": tooling.save_pattern,
    "sessions.update_approval_settings": tooling.update_settings,
    "plugins.enable": tooling.enable_plugin,
    "plugins.disable": tooling.disable_plugin,
    "plugins.forget": tooling.forget_plugin,
    "tools.prune": tooling.prune,
    "providers.save": tooling.save_entry,
    "providers.delete": tooling.delete_entry,
    "providers.check": tooling.check_entry,
    "projects.add": actions.add_project,
    "projects.remove": actions.remove_project,
    "sessions.delete": actions.delete_session,
    "messages.send": actions.send,
    "runs.cancel": actions.cancel_run,
    "store.backup": actions.backup,
    "daemon.shutdown": actions.shutdown,
    "daemon.reload": actions.reload,
}
"""Wait for something outside besides the commit."""

REFUSALS_REMEMBERED: Final = 256
"""How many refused (process, method) pairs are remembered, so that each is told once and a flood writes little."""

REFUSALS_TOLD: Final = 60
REFUSALS_WINDOW_S: Final = 60.0
"""How many refusals are told in how many seconds, besides the first of each session at each method."""

REPLAY_PATIENCE: Final = 1500
REPLAY_PAUSE_S: Final = 0.02
"""How long a replay waits for a reader that does not read: 30 s in all, then it is told that it lagged."""


class Dispatcher:
    """Serves the connections of a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: OrderedDict[tuple[int, int, str], None] = OrderedDict()
        self._told_at: deque[float] = deque()
        self._tried: set[tuple[SessionId | None, str]] = set()
        self._subscriptions: dict[Connection, Subscription] = {}
        """Who wants to hear events, from the request on; the bus knows them only when their replay is over."""

    def connected(self, conn: Connection) -> None:
        """Nothing to do: a client says who it is when it wants to."""

    def closed(self, conn: Connection) -> None:
        """Stop sending events to a client that is gone."""
        self._unsubscribe(conn)

    def request(self, conn: Connection, request: Request) -> None:
        """Serve one request.

        Raises: EryxError -- a refusal, which the connection answers with.
        """
        method = _method(request.method)
        self._guard(conn, method)
        if self._daemon.stopping.is_set() and method.access in (Access.STEER, Access.WIDEN):
            raise ShuttingDown("The daemon is stopping.")
        params: Any = decode_params(request.params, method.params)
        name, msgid = method.name, request.msgid
        if name in READS:
            conn.reply(msgid, READS[name](self._daemon, params))
        elif name in USE_CASES:
            caller = self._caller(conn)
            self._daemon.engine.execute(USE_CASES[name], params, _answer(conn, msgid), caller=caller)
        elif name == "hello":
            conn.reply(msgid, self._hello(conn, params))
        elif name == "events.subscribe":
            subscription = self._subscriptions[conn] = self._subscription(conn, params)
            self._spawn(conn, msgid, self._subscribe(conn, msgid, params, subscription))
        elif name == "events.unsubscribe":
            self._unsubscribe(conn)
            conn.reply(msgid, out.Ended(seq=self._daemon.engine.seq))
        elif name in WAITING_READS:
            self._spawn(conn, msgid, _reply(conn, msgid, WAITING_READS[name](self._daemon, params)))
        else:
            action = ACTIONS[name](self._daemon, self._caller(conn), params)
            self._spawn(conn, msgid, _reply(conn, msgid, action))

    def _guard(self, conn: Connection, method: Method) -> None:
        """Let the call pass, or refuse it, write that down and tell the person."""
        if method.access is Access.OPEN:
            return
        peer = self._trusted(conn.peer)
        if not peer.marks and method.access in (Access.WIDEN, Access.ADMIN):
            # A connection may be old: what widens is decided on what its process is now.
            peer = self._trusted(guard.recheck(conn.peer))
        try:
            guard.check(peer, method.access)
        except ForbiddenPeer as refusal:
            self._tell(peer, method, str(refusal.data["check"]))
            raise

    def _trusted(self, peer: Peer) -> Peer:
        if self._daemon.settings.guard.no_new_privs:
            return peer
        return replace(peer, marks=tuple(mark for mark in peer.marks if mark != NO_NEW_PRIVS))

    def _tell(self, peer: Peer, method: Method, check: str) -> None:
        key = (peer.pid, peer.start_time, method.name)
        if key in self._told:
            return
        session = self._session_of(peer.pid)
        # The first try of a session at a method is always told: cheap calls must not hide the one that counts.
        if (session, method.name) in self._tried and not self._may_tell(time.monotonic()):
            return
        self._tried.add((session, method.name))
        self._told[key] = None
        if len(self._told) > REFUSALS_REMEMBERED:
            self._told.popitem(last=False)
        refusal = out.Refusal(
            at=clock.now(),
            pid=peer.pid,
            command=guard.command_name(peer.pid),
            method=method.name,
            check=check,
            session_id=session or UNSET,
        )
        self._daemon.refusals.append(refusal)
        log.warning("refused %s to process %d (%s): %s", method.name, peer.pid, refusal.command, check)
        self._daemon.engine.execute(audit.refuse, refusal, _unheard)

    def _may_tell(self, now: float) -> bool:
        """Whether there is room for one more refusal: an agent that forks for each try must not fill the journal."""
        while self._told_at and now - self._told_at[0] > REFUSALS_WINDOW_S:
            self._told_at.popleft()
        if len(self._told_at) >= REFUSALS_TOLD:
            return False
        self._told_at.append(now)
        return True

    def _session_of(self, pid: int) -> SessionId | None:
        """Say which session's agent a process belongs to, by its ancestors."""
        return self._daemon.runs.owner_of(guard.ancestry(pid))

    def _caller(self, conn: Connection) -> Caller:
        return Caller(uid=conn.peer.uid, pid=conn.peer.pid, client_name=conn.client_name)

    def _hello(self, conn: Connection, request: ask.Hello) -> out.HelloReply:
        reply = reads.hello(self._daemon, request)
        if request.client is not UNSET:
            conn.client_name = request.client
        if request.errors is not UNSET:
            if request.errors not in ("text", "map"):
                raise Invalid('Errors come as "map" or as "text".', problems=["errors: is neither"])
            conn.errors_as_text = request.errors == "text"
        return reply

    def _spawn(self, conn: Connection, msgid: int, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(_guarded(conn, msgid, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _unsubscribe(self, conn: Connection) -> None:
        self._subscriptions.pop(conn, None)
        self._daemon.bus.leave(conn)

    async def _subscribe(
        self, conn: Connection, msgid: int, request: ask.EventsSubscribe, subscription: Subscription
    ) -> None:
        """Replay the journal page by page, then join the live stream in one step, without a gap or a double.

        Ends early when the client has unsubscribed, subscribed anew or gone.
        """
        daemon = self._daemon
        page = [] if request.since is UNSET else await daemon.history.journal(request.since)
        if self._subscriptions.get(conn) is subscription:
            # A later request may have been quicker, and have joined already.
            daemon.bus.leave(conn)
        conn.reply(msgid, out.Subscribed(epoch=daemon.epoch, seq=daemon.engine.seq))
        while request.since is not UNSET and self._subscriptions.get(conn) is subscription:
            wanted = [encode_event(row.body) for row in page if subscription.wants(row.topic, row.session_id)]
            conn.send(b"".join(wanted))
            subscription.after = page[-1].seq if page else subscription.after
            # Nothing is awaited between this comparison and joining: no batch can land in between.
            if subscription.after >= daemon.engine.seq:
                break
            if not await _has_read(conn):
                daemon.bus.drop(subscription)
                return
            page = await daemon.history.journal(subscription.after)
        if request.since is UNSET:
            subscription.after = daemon.engine.seq
        if self._subscriptions.get(conn) is subscription:
            daemon.bus.join(subscription)

    def _subscription(self, conn: Connection, request: ask.EventsSubscribe) -> Subscription:
        topics = None if request.topics is UNSET else frozenset(request.topics)
        unknown = sorted((topics or frozenset()) - set(Topic))
        if unknown:
            raise Invalid(
                f"There is no topic {unknown[0]!r}.", problems=unknown, known=[topic.value for topic in Topic]
            )
        if request.epoch is not UNSET and request.epoch != self._daemon.epoch:
            raise JournalGap(
                "The store is another one than that of your epoch; take a snapshot with workspace.get.",
                epoch=self._daemon.epoch,
            )
        if request.session_id is not UNSET:
            reads.need(self._daemon, SessionHead, request.session_id, "session")
        return Subscription(conn, topics, request.session_id or None, request.since or 0)

    async def close(self) -> None:
        """Cancel what still waits for somebody."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=1.0)


def _method(name: str) -> Method:
    method = METHODS.get(name)
    if method is None:
        near = get_close_matches(name[:100], METHODS, n=1)
        hint = f" Did you mean {near[0]}?" if near else " See api.describe."
        raise UnknownMethod(f"There is no such method.{hint}", near=near)
    return method


async def _has_read(conn: Connection) -> bool:
    for _ in range(REPLAY_PATIENCE):
        if conn.closed or conn.write_buffer_size() <= MAX_QUEUED_BYTES:
            return True
        await asyncio.sleep(REPLAY_PAUSE_S)
    return False


def _answer(conn: Connection, msgid: int) -> Callable[[Any, EryxError | None], None]:
    def done(reply: Any, error: EryxError | None) -> None:
        if error is None:
            conn.reply(msgid, reply)
        else:
            conn.fail(msgid, error)

    return done


async def _reply(conn: Connection, msgid: int, work: Awaitable[Any]) -> None:
    conn.reply(msgid, await work)


async def _guarded(conn: Connection, msgid: int, work: Awaitable[None]) -> None:
    """Answer a request whatever happens to the task that serves it."""
    try:
        await work
    except EryxError as error:
        conn.fail(msgid, error)
    except asyncio.CancelledError:
        conn.fail(msgid, ShuttingDown("The daemon is stopping."))
        raise
    except Exception as error:
        log.error("a request broke down", exc_info=error)
        conn.fail(msgid, Internal("The daemon could not answer; its log says why."))


def _unheard(reply: object, error: EryxError | None) -> None:
    if error is not None:
        log.warning("a refusal was not journalled: %s", error.code)
