"""What is set on threads and processes for their children's sake: `no_new_privs` and the subreaper's flag."""

import ctypes
import os
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37
_PR_SET_NO_NEW_PRIVS: Final = 38


def mark_this_thread() -> None:
    """Set `no_new_privs` on the calling thread and whatever it starts, for ever; other threads stay as they are.

    Raises: OSError -- the kernel refuses.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def is_marked(pid: int | str) -> bool:
    """Whether a process, or `self`, carries `no_new_privs`.

    Raises: FileNotFoundError -- there is no such process.
    """
    with open(f"/proc/{pid}/status", "rb") as file:
        return b"\nNoNewPrivs:\t1\n" in file.read()


def become_subreaper() -> None:
    """Have orphans of our children become ours, so that they can be found and are reaped.

    Raises: OSError -- the kernel refuses.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def is_subreaper() -> bool:
    """Whether orphans among our descendants become our children."""
    answer = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer))
    return bool(answer.value)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    rest = [ctypes.c_ulong(number) for number in (value, 0, 0, 0)]
    if libc.prctl(option, *rest) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"prctl {option}")
