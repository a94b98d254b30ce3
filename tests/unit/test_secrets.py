"""Secrets of a record: taken out, masked, put back, and kept in a file that nobody else can read."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, UnsetType

from eryxd.core.secrets import fill, hide
from eryxd.daemon.secret_file import SECRETS_FILE, SecretFile
from eryxd.domain.errors import StoreUnavailable
from eryxd.domain.ids import Record
from eryxd.domain.providers import SECRET_MASK
from eryxd.plugin.types import Secret
from tests.requirements import requirement


class Server(Record, frozen=True, kw_only=True):
    """What a server's definition may look like."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, Secret] = {}
    token: Secret | UnsetType = UNSET


records = st.fixed_dictionaries(
    {"command": st.text(max_size=5)},
    optional={
        "env": st.dictionaries(st.text(max_size=3), st.text(max_size=5).filter(lambda text: text != SECRET_MASK)),
        "token": st.text(max_size=5).filter(lambda text: text != SECRET_MASK),
        "args": st.lists(st.text(max_size=3)),
    },
)


@requirement("SEC-1")
@given(records)
def test_what_is_shown_holds_no_secret_and_filling_it_gives_the_record_again(raw: dict[str, Any]) -> None:
    shown, secrets = hide(Server, raw)

    assert all(value == SECRET_MASK for value in shown.get("env", {}).values())
    assert shown.get("token", SECRET_MASK) == SECRET_MASK
    assert fill(Server, shown, secrets) == (raw, [])
    assert hide(Server, shown) == (shown, {})


@requirement("SEC-1")
def test_a_mask_stands_for_the_secret_that_was_there_and_for_none_where_there_was_none() -> None:
    shown = {"command": "x", "token": SECRET_MASK, "env": {"A": SECRET_MASK, "B": "new"}}

    filled, unknown = fill(Server, shown, {"token": "t0p", "env/C": "old"})

    assert filled == {"command": "x", "token": "t0p", "env": {"A": SECRET_MASK, "B": "new"}}
    assert unknown == ["env/A"]


@requirement("SEC-1")
def test_a_record_that_does_not_fit_its_type_is_left_to_whoever_checks_it() -> None:
    """Hiding must not be what breaks."""
    assert hide(Server, {"env": 7, "token": ["x"], "other": 1}) == ({"env": 7, "token": ["x"], "other": 1}, {})


@requirement("SEC-2")
def test_secrets_are_kept_in_a_private_file_by_entry(tmp_path: Path) -> None:
    """Beside each other, and forgotten one by one."""
    file = SecretFile(tmp_path)
    file.keep("mcp:git", {"env/TOKEN": "one"})
    file.keep("mcp:hub", {"token": "two"})
    file.keep("mcp:git", {})

    assert (tmp_path / SECRETS_FILE).stat().st_mode & 0o777 == 0o600
    assert SecretFile(tmp_path).of("mcp:hub") == {"token": "two"}
    assert file.of("mcp:git") == {}
    assert os.listdir(tmp_path) == [SECRETS_FILE]


@requirement("SEC-2")
@pytest.mark.parametrize("content", ["{", "[]", '{"mcp:git": 1}'])
def test_a_file_that_cannot_be_used_is_named_and_left(tmp_path: Path, content: str) -> None:
    """Never taken for an empty one: the next save would lose every secret."""
    path = tmp_path / SECRETS_FILE
    path.write_text(content)
    path.chmod(0o600)
    for use in (lambda: SecretFile(tmp_path).of("mcp:git"), lambda: SecretFile(tmp_path).keep("mcp:git", {"a": "b"})):
        with pytest.raises(StoreUnavailable, match=str(path)):
            use()

    assert path.read_text() == content


@requirement("SEC-2")
def test_a_file_that_others_may_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / SECRETS_FILE
    path.write_text(json.dumps({}))
    path.chmod(0o666)
    with pytest.raises(StoreUnavailable, match="chmod go-w"):
        SecretFile(tmp_path).read()


@requirement("SEC-1")
def test_the_schema_of_a_record_does_not_know_of_secrets() -> None:
    """It is a text for whoever fills in the form."""
    assert "secret" not in json.dumps(msgspec.json.schema(Server))
