"""`python -m bench [NAME…]`: measure what was asked for, or everything, and say whether the goals are met."""

import argparse
import compileall
import json
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any, Final

import eryxd
from bench import commands, durable, pruning, scale, serving
from bench.harness import Bench, Place, Result, Unavailable, measure, placed
from bench.process import ROOT

BENCHES: Final = (*serving.BENCHES, *commands.BENCHES, *durable.BENCHES, *scale.BENCHES, *pruning.BENCHES)

CACHE: Final = ROOT / ".cache" / "bench"


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 when a goal was missed, 2 for a name that is none."""
    options = _options(argv)
    if options.list:
        print("\n".join(f"{bench.name:16} {bench.subject} / {bench.baseline}" for bench in BENCHES))
        return 0
    wanted = chosen(options.names)
    if not wanted:
        print(f"bench: there is no bench of that name; see --list: {' '.join(options.names)}", file=sys.stderr)
        return 2
    compile_sources()
    about = surroundings(options.seed, options.one_core)
    say = _silent if options.json else _say
    say("  ".join(f"{key} {value}" for key, value in about.items()))
    with placed(options.one_core):
        # Not for secrets: it only draws which side goes first.
        results, missing = _measured(wanted, Random(options.seed), say)  # noqa: S311
    say(f"load afterwards {_load()}")
    if options.json:
        shown = [result.plain() for result in results]
        print(json.dumps({**about, "load_after": _load(), "results": shown, "not_measured": missing}, indent=2))
    return int(not all(result.met for result in results))


def _say(line: str) -> None:
    print(line, flush=True)


def _silent(line: str) -> None:
    """Keep standard output for the document."""


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a bench, or the beginning of several: scale")
    parser.add_argument("--list", action="store_true", help="name the benches and end")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    parser.add_argument("--seed", type=int, default=1, help="decides in which order the sides of each pair run")
    parser.add_argument("--one-core", action="store_true", help="keep everything on one processor")
    return parser.parse_args(argv)


def chosen(names: Sequence[str]) -> list[Bench]:
    """Return the benches that these names stand for: all for none, and none when a name is unknown."""
    if not names:
        return list(BENCHES)
    known = [[bench for bench in BENCHES if _is_named(bench, name)] for name in names]
    wanted = {bench.name for found in known for bench in found}
    return [bench for bench in BENCHES if bench.name in wanted] if all(known) else []


def _is_named(bench: Bench, name: str) -> bool:
    return bench.name == name or bench.name.startswith(f"{name}-")


def compile_sources() -> None:
    """Write the bytecode that an installation has: without it every start would measure the compiler."""
    compileall.compile_dir(ROOT / "eryxd", quiet=1)
    compileall.compile_dir(ROOT / "bench", quiet=1)


def surroundings(seed: int, one_core: bool) -> dict[str, Any]:
    """Return what a number cannot be understood without."""
    return {
        "eryxd": eryxd.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "msgspec": version("msgspec"),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "placement": "one core" if one_core else "free",
        "load": _load(),
        "seed": seed,
    }


def _load() -> str:
    return " ".join(f"{average:.2f}" for average in os.getloadavg())


def _measured(
    benches: Iterable[Bench], random: Random, say: Callable[[str], None]
) -> tuple[list[Result], dict[str, str]]:
    """Return what was found, and why the rest was not measured."""
    results: list[Result] = []
    missing: dict[str, str] = {}
    CACHE.mkdir(parents=True, exist_ok=True)
    for bench in benches:
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))
        try:
            results.append(measure(bench, Place(folder, CACHE), random))
            say(results[-1].text())
        except Unavailable as reason:
            missing[bench.name] = str(reason)
            say(f"{bench.name}: not measured: {reason}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return results, missing


if __name__ == "__main__":
    raise SystemExit(main())
