"""Secrets inside a record: found by the record's type, taken out, masked and put back.

Laws: what `hide` shows holds no secret; `fill` of what `hide` gave is the record again; a mask that is filled in stands
for the secret that was there before, and for none where there was none.

Source: architecture 5.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import inspect

from eryxd.domain.ids import Record
from eryxd.domain.providers import SECRET_MASK

_MARK: Final = "secret"

Raw = dict[str, Any]


def secret_places(kind: type[Record], raw: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield where the secrets of a record stand: a field, or a field and a key of it."""
    for field in inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        value = raw.get(field.encode_name)
        if _is_secret(field.type) and isinstance(value, str):
            yield (field.encode_name,)
        elif _holds_secrets(field.type) and isinstance(value, Mapping):
            yield from ((field.encode_name, key) for key, inner in value.items() if isinstance(inner, str))


def _is_secret(found: inspect.Type) -> bool:
    if isinstance(found, inspect.UnionType):
        return any(_is_secret(one) for one in found.types)
    return isinstance(found, inspect.Metadata) and (found.extra or {}).get("eryx") == _MARK


def _holds_secrets(found: inspect.Type) -> bool:
    if isinstance(found, inspect.UnionType):
        return any(_holds_secrets(one) for one in found.types)
    return isinstance(found, inspect.DictType) and _is_secret(found.value_type)


def hide(kind: type[Record], raw: Mapping[str, Any]) -> tuple[Raw, dict[str, str]]:
    """Return a record with masks, and its secrets by place.  A mask that is there already is no secret."""
    shown, secrets = _copy(raw), dict[str, str]()
    for place in list(secret_places(kind, raw)):
        holder = shown if len(place) == 1 else shown[place[0]]
        if holder[place[-1]] != SECRET_MASK:
            secrets["/".join(place)] = holder[place[-1]]
            holder[place[-1]] = SECRET_MASK
    return shown, secrets


def fill(kind: type[Record], shown: Mapping[str, Any], secrets: Mapping[str, str]) -> tuple[Raw, list[str]]:
    """Return a record with its secrets, and the places of masks that stand for nothing."""
    raw, unknown = _copy(shown), list[str]()
    for place in list(secret_places(kind, shown)):
        holder, name = (raw if len(place) == 1 else raw[place[0]]), "/".join(place)
        if holder[place[-1]] == SECRET_MASK:
            if name in secrets:
                holder[place[-1]] = secrets[name]
            else:
                unknown.append(name)
    return raw, unknown


def _copy(raw: Mapping[str, Any]) -> Raw:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in raw.items()}
