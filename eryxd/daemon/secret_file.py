"""Secrets of entries, in a file of their own beside the store: mode 0600, in no backup.

Law: a secret that was saved is there after any crash, together with the entry that was saved with it or the one before.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eryxd.domain.errors import Invalid, StoreUnavailable
from eryxd.trust import require_trusted

SECRETS_FILE: Final = "secrets.json"


class SecretFile:
    """All secrets, by entry and place in its record.  Blocks; a few kilobytes."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / SECRETS_FILE

    def read(self) -> dict[str, dict[str, str]]:
        """Return the secrets of every entry.

        Raises: StoreUnavailable -- the file is there and cannot be used, or others may change it.
        """
        try:
            with self._path.open("rb") as file:
                require_trusted(str(self._path), os.fstat(file.fileno()))
                found = json.load(file)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, Invalid) as error:
            raise StoreUnavailable(
                f"The secrets in {self._path} cannot be read: {error}. Mend the file, or move it away and enter the"
                " secrets again.",
                path=str(self._path),
            ) from error
        if not isinstance(found, dict) or not all(isinstance(of_one, dict) for of_one in found.values()):
            raise StoreUnavailable(f"{self._path} does not hold secrets.", path=str(self._path))
        return found

    def of(self, entry: str) -> dict[str, str]:
        """Return the secrets of one entry, by their places."""
        return self.read().get(entry, {})

    def keep(self, entry: str, secrets: Mapping[str, str]) -> None:
        """Replace the secrets of one entry; none at all forgets it."""
        known = self.read()
        if known.get(entry, {}) == dict(secrets):
            return
        known.pop(entry, None)
        if secrets:
            known[entry] = dict(secrets)
        self._write(known)

    def _write(self, known: Mapping[str, Mapping[str, str]]) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(known, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self._path)
        except OSError as error:
            raise StoreUnavailable(
                f"The secrets cannot be written to {self._path}: {error.strerror}.", path=str(self._path)
            ) from error
