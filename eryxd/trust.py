"""Whom a file or folder may belong to before what is in it is believed."""

import os
import shlex
import stat

from eryxd.domain.errors import Invalid


def require_trusted(path: str, found: os.stat_result) -> None:
    """Check that only the user and root can have decided what is in the file or folder `path`.

    Raises: Invalid -- it belongs to somebody else, or others may write to it; names the command that helps.
    """
    if found.st_uid not in (os.getuid(), 0):
        cure = f"sudo chown {os.getuid()} {shlex.quote(path)}"
        raise Invalid(f"{path} belongs to another user (uid {found.st_uid}).  Type: {cure}", file=path)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(found.st_mode)
        cure = f"chmod go-w {shlex.quote(path)}"
        raise Invalid(f"{path} can be changed by other users (mode {mode:04o}).  Type: {cure}", file=path)
