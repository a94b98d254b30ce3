"""TOML, read with a bound: the parser of the standard library is quadratic in the parts of a dotted key.

Law: what `loads` takes, `tomllib` takes, and gives the same; a key of more than `MAX_PARTS` parts is refused before
anything is parsed.
"""

import re
import tomllib
from typing import Any, Final

MAX_PARTS: Final = 32
"""Parts of one dotted key.  Ours have two; 240 kB of them once took 24 GB."""

_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_TOO_MANY: Final = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_PARTS},}}")


def loads(text: str) -> dict[str, Any]:
    """Parse a TOML document.  The same run of dotted words is refused inside a string as well: it cannot be told apart.

    Raises: tomllib.TOMLDecodeError; RecursionError -- it is nested too deeply.
    """
    found = _TOO_MANY.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        raise tomllib.TOMLDecodeError(f"more than {MAX_PARTS} words joined by dots (at line {line})")
    return tomllib.loads(text)
