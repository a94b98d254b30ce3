"""Where a record comes from that no client has saved.

Source: FIL-1 to FIL-3.
"""

from hashlib import sha256
from typing import Any

import msgspec

from eryxd.domain.ids import Record


class FileOrigin(Record, frozen=True, kw_only=True):
    """The file that defines a record, which is changed there.  `line` counts from 1."""

    file: str
    line: int


def revision_of(table: Any) -> int:
    """Return the revision of what a file says: 52 bits of a digest, so that it fits a JSON number (FIL-3)."""
    return int.from_bytes(sha256(msgspec.json.encode(table)).digest()[:7]) >> 4
