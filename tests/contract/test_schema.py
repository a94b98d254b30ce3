"""The public interface: a golden copy of its description, and what has to hold of every row of its tables."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from eryxd.api.access import Access
from eryxd.api.describe import ERRORS, describe
from eryxd.api.errors import EXIT_STATUS
from eryxd.api.events import TOPIC, TRANSIENT, EventType, Topic
from eryxd.api.methods import METHODS, Method
from eryxd.domain.errors import ErrorCode, EryxError

GOLDEN: Final = Path(__file__).with_name("api_schema.json")
REGENERATE: Final = "python -m eryxd.api.describe > tests/contract/api_schema.json"

EACH_METHOD: Final = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())


def described() -> dict[str, Any]:
    """Return the description as a client reads it, without the version, which changes with every release."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(describe()))
    del plain["version"]
    return plain


def golden() -> dict[str, Any]:
    """Return the copy that was last agreed to, without its version."""
    agreed: dict[str, Any] = json.loads(GOLDEN.read_text())
    del agreed["version"]
    return agreed


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Name each place where two plain values differ: added, removed or changed."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [f"changed: {path}"]
    found = []
    for key in sorted(old.keys() | new.keys()):
        where = f"{path}.{key}" if path else key
        if key not in new:
            found.append(f"removed: {where}")
        elif key not in old:
            found.append(f"added: {where}")
        else:
            found += differences(old[key], new[key], where)
    return found


def by_name(description: dict[str, Any]) -> dict[str, Any]:
    """Return the description with its tables keyed, so that a difference names the row."""
    keys = {"methods": "name", "events": "type", "errors": "code"}
    return description | {table: {row[key]: row for row in description[table]} for table, key in keys.items()}


def test_the_interface_is_the_one_agreed_to() -> None:
    """A change of the interface is a decision: it shows in the diff of the golden file."""
    found = differences(by_name(golden()), by_name(described()))
    assert not found, "\n".join(
        ["The interface changed:", *found, "If that is meant, have it noted in CHANGELOG.md and run:", REGENERATE]
    )
    assert described() == golden(), f"Only the order changed; run: {REGENERATE}"


def test_the_description_is_the_same_each_time() -> None:
    """Else the golden file could not be kept."""
    assert msgspec.json.encode(describe()) == msgspec.json.encode(describe())


def references(value: Any) -> set[str]:
    """Return every `$ref` in a plain value."""
    if isinstance(value, dict):
        inner = set[str]().union(*(references(part) for part in value.values()))
        return inner | ({value["$ref"]} if isinstance(value.get("$ref"), str) else set())
    if isinstance(value, list):
        return set[str]().union(*(references(part) for part in value))
    return set()


def test_every_reference_leads_somewhere() -> None:
    """Within the description, and nothing is defined that nobody refers to, but the event itself."""
    plain = described()
    defined = {f"#/definitions/{name}" for name in plain["definitions"]}

    assert references(plain) == defined - {"#/definitions/Event"}


def test_every_schema_says_what_it_is() -> None:
    """The reference pages are made of these words."""
    silent = [name for name, schema in described()["definitions"].items() if not schema.get("description")]

    assert silent == []


@EACH_METHOD
def test_every_method_has_an_access_class_and_a_summary(method: Method) -> None:
    """One without a class does not load."""
    assert isinstance(method.access, Access)
    assert method.summary.endswith(".")


@EACH_METHOD
def test_every_method_refuses_unknown_arguments(method: Method) -> None:
    """A misspelt restriction must not be skipped in silence."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"no_such_argument": 1}, method.params)


@EACH_METHOD
def test_every_method_is_a_noun_and_a_verb(method: Method) -> None:
    """Command groups are the nouns."""
    parts = method.name.split(".")

    assert len(parts) == 2 or method.name in {"hello", "ping"}
    assert all(part.replace("_", "").isalpha() and part.islower() for part in parts)


def null_types(value: Any, path: str = "") -> list[str]:
    """Return each place of a plain value where a schema admits nil."""
    if isinstance(value, dict):
        here = [path] if value.get("type") == "null" else []
        return here + [found for key, part in value.items() for found in null_types(part, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for index, part in enumerate(value) for found in null_types(part, f"{path}[{index}]")]
    return []


def test_nothing_that_crosses_the_socket_is_ever_nil() -> None:
    """Optional is absent: nil could mean `clear` as well as `leave`."""
    assert null_types(described()["definitions"]) == []


def test_every_event_type_has_a_topic() -> None:
    """And every topic has an event that can be heard under it."""
    assert set(TOPIC) == set(EventType)
    assert set(TOPIC.values()) == set(Topic)
    assert set(EventType) >= TRANSIENT


def test_every_error_code_has_an_exit_status() -> None:
    """A shell script can branch on it; 0, 1, 2 and those of signals are taken."""
    assert set(EXIT_STATUS) == set(ErrorCode)
    assert all(2 < status < 126 for status in EXIT_STATUS.values())


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.INTERNAL])
def test_every_error_code_has_a_class_that_explains_it(code: ErrorCode) -> None:
    """Only what nobody foresaw is the base class itself."""
    assert ERRORS[code] is not EryxError
    assert ERRORS[code].code is code
    assert ERRORS[code].__doc__
