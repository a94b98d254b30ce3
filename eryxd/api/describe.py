"""The whole interface as one record: what `api.describe` returns and what the reference pages are made from.

Everything is generated from the method table, the events and the error classes; nothing is written twice.
`python -m eryxd.api.describe` prints it as JSON.  Law: the same code gives the same bytes.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from eryxd import __version__
from eryxd.api.errors import EXIT_STATUS
from eryxd.api.events import TOPIC, TRANSIENT, Event, EventType
from eryxd.api.methods import METHODS, PROTOCOL
from eryxd.api.replies import Description
from eryxd.domain import errors
from eryxd.domain.errors import ErrorCode, EryxError

REF: Final = "#/definitions/{name}"
"""Where a schema points to another one, within the description itself."""


@cache
def describe() -> Description:
    """Return every method, event and error, with a JSON Schema (2020-12) of each record under `definitions`.

    Methods and events come in the order of their tables, definitions by name.
    """
    records = [part for method in METHODS.values() for part in (method.params, method.result)]
    references, definitions = msgspec.json.schema_components([*records, Event], ref_template=REF)
    pairs = zip(references[::2], references[1::2], strict=False)
    return Description(
        protocol=PROTOCOL,
        version=__version__,
        methods=tuple(
            {
                "name": method.name,
                "access": method.access.value,
                "summary": method.summary,
                "params": params,
                "result": result,
            }
            for method, (params, result) in zip(METHODS.values(), pairs, strict=True)
        ),
        events=tuple(
            {"type": event.value, "topic": TOPIC[event].value, "transient": event in TRANSIENT} for event in EventType
        ),
        errors=tuple(
            {"code": code.value, "exit_status": EXIT_STATUS[code], "summary": _summary(ERRORS[code])}
            for code in ErrorCode
        ),
        definitions=dict(sorted(definitions.items())),
    )


def _error_classes() -> dict[ErrorCode, type[EryxError]]:
    """Return the class that declares each code; the base class stands for what has none of its own."""
    found = {code: EryxError for code in ErrorCode}
    for declared in vars(errors).values():
        if isinstance(declared, type) and issubclass(declared, EryxError):
            found[declared.code] = declared
    return found


ERRORS: Final[Mapping[ErrorCode, type[EryxError]]] = _error_classes()
"""The class of each code."""


def _summary(declared: type[Any]) -> str:
    return " ".join((declared.__doc__ or "").split())


def main() -> None:
    """Print the description as JSON, indented, so that a change reads well in a diff."""
    print(msgspec.json.format(msgspec.json.encode(describe()), indent=2).decode())


if __name__ == "__main__":
    main()
