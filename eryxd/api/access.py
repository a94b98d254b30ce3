"""The class of a method: what a peer must be to call it."""

from enum import StrEnum


class Access(StrEnum):
    """From what anybody of this user may call to what stops the daemon.  A method without one does not load."""

    OPEN = "open"
    AGENT = "agent"
    READ = "read"
    STEER = "steer"
    WIDEN = "widen"
    ADMIN = "admin"
