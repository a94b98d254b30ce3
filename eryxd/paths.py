"""Where eryx keeps its files, from the environment alone.

Every client command imports this, so it uses `os` and nothing else: no pathlib, no platformdirs (a test holds
the two together).  It creates nothing; whoever writes to a folder first makes it, with mode 0700.
"""

import os
import stat
from collections.abc import Mapping
from typing import Final

APP: Final = "eryx"
"""Name of our folder below each of the XDG base folders."""

SOCKET_NAME: Final = "eryxd.sock"
"""Name of the daemon's socket in the runtime folder."""

RUN_USER: Final = "/run/user"
"""Where systemd keeps one runtime folder per user, named by uid."""


def config_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder that the user owns: `config.toml`, `workspace.d/`, `plans/`."""
    return _home(environ, "config") or os.path.join(_xdg(environ, "XDG_CONFIG_HOME", ".config"), APP)


def state_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder that the daemon owns: store, lock, log."""
    return _home(environ, "state") or os.path.join(_xdg(environ, "XDG_STATE_HOME", ".local/state"), APP)


def runtime_dir(environ: Mapping[str, str] = os.environ, *, run_user: str = RUN_USER) -> str:
    """Return the folder of the socket: the first candidate that nobody else can reach, never one in /tmp.

    `$ERYX_HOME/run` is taken as it is, and so is the last resort, `<state>/run`: the client checks whatever
    it gets before it connects.  The answer can change while a candidate appears or changes its mode.
    """
    if home := _home(environ, "run"):
        return home
    bases = [environ.get("XDG_RUNTIME_DIR", ""), os.path.join(run_user, str(os.getuid()))]
    usable = (os.path.join(base, APP) for base in bases if os.path.isabs(base) and _offers_private(base))
    return next(usable, None) or os.path.join(state_dir(environ), "run")


def socket_path(environ: Mapping[str, str] = os.environ) -> str:
    """Return the path of the daemon's socket.  It may be longer than the 107 bytes a Unix address holds."""
    return os.path.join(runtime_dir(environ), SOCKET_NAME)


def plans_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder whose files the replay backend offers as models, by name.  Source: BKD-4."""
    return os.path.join(config_dir(environ), "plans")


def scratch_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder that holds one directory per scratchpad session."""
    return os.path.join(state_dir(environ), "scratch")


def log_path(environ: Mapping[str, str] = os.environ) -> str:
    """Return the daemon's log file."""
    return os.path.join(state_dir(environ), "eryxd.log")


def is_private_dir(path: str) -> bool:
    """Whether `path` itself (a symlink is not followed) is a directory of ours with mode 0700."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and found.st_mode & 0o777 == 0o700


def _offers_private(base: str) -> bool:
    """Whether our folder in `base` is private, or, where there is none yet, `base` itself is."""
    ours = os.path.join(base, APP)
    return is_private_dir(ours if os.path.lexists(ours) else base)


def _home(environ: Mapping[str, str], folder: str) -> str | None:
    """Return `folder` of `ERYX_HOME`, or None where that is unset or empty.

    A relative value counts from the working directory: ignoring it, as the XDG rules would, sends someone
    who meant to stay apart to their real sessions.
    """
    home = environ.get("ERYX_HOME", "")
    return os.path.join(os.path.abspath(home), folder) if home else None


def _xdg(environ: Mapping[str, str], variable: str, default: str) -> str:
    """Return an XDG base folder; the specification has relative values ignored."""
    value = environ.get(variable, "")
    return value if os.path.isabs(value) else os.path.join(_user_home(environ), default)


def _user_home(environ: Mapping[str, str]) -> str:
    """Return `$HOME`, or what the password database says where that is unset or not absolute.

    Raises: Invalid -- the user is in no password database either, as in some containers.
    """
    home = environ.get("HOME", "")
    return home if os.path.isabs(home) else _recorded_home(os.getuid())


def _recorded_home(uid: int) -> str:
    """Return the home folder of `uid` in the password database."""
    # Imported here because hardly any process lacks HOME.
    import pwd

    from eryxd.domain.errors import Invalid

    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        raise Invalid("No home folder is known for this user.  Set HOME or ERYX_HOME.", uid=uid) from None
