"""Calls of other people's code that blocks: each in a thread of its own that nobody ever has to wait for.

Law: whatever the code does (raise, exit, hang), the caller gets an answer or an ordinary error within the limit, and
the daemon can stop.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Broke(Exception):
    """The code raised; `cause` is what it raised, `SystemExit` and the like included."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__)
        self.cause = cause


async def in_thread(work: Callable[[], T], limit_s: float) -> T:
    """Run what blocks, for at most `limit_s` seconds; a thread that hangs is left behind.

    Raises: Broke; TimeoutError.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(Broke(error))
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 -- a plugin must not end the daemon
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            # The loop has ended while the plugin hung: nobody is there to be told.
            return

    # A daemon thread: one that hangs must not keep the process from ending.
    threading.Thread(target=run, name="eryxd-foreign", daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await future
