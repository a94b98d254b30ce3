"""What a person waits for at the prompt, against the interpreter that runs it."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.harness import Bench, Pair, Place, Unavailable
from bench.process import DAEMON, ROOT, Home, environment, serving

ERYX: Final = Path(sys.executable).with_name("eryx")
"""The installed console script; a shell finds it without a shim in between."""

NOTHING: Final = (sys.executable, "-c", "pass")

LONGEST_S: Final = 30.0


@contextmanager
def _command(place: Place, *arguments: str) -> Iterator[Pair]:
    if not ERYX.exists():
        raise Unavailable(f"there is no {ERYX.name} beside {sys.executable}: install the project first")
    home = Home(place.folder / "home")
    with serving(DAEMON, home):
        yield Pair(lambda: _spawn((str(ERYX), *arguments), home), lambda: _spawn(NOTHING, home))


def _spawn(argv: Sequence[str], home: Home) -> float:
    """Return the seconds until a command has ended, well."""
    before = time.perf_counter()
    done = subprocess.run(argv, cwd=ROOT, env=environment(home.path), capture_output=True, timeout=LONGEST_S)
    took = time.perf_counter() - before
    if done.returncode:
        raise RuntimeError(f"{argv!r} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    return took


BENCHES: Final = (
    Bench("cli-status", "eryx status", "python -c pass", 7.0, 15, lambda place: _command(place, "status")),
    Bench(
        "cli-short",
        "eryx status --short",
        "python -c pass",
        3.0,
        15,
        lambda place: _command(place, "status", "--short"),
    ),
    Bench("cli-help", "eryx --help", "python -c pass", 8.0, 15, lambda place: _command(place, "--help")),
)
