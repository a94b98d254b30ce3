"""TOML with a bound on its keys."""

import tomllib

import pytest
from hypothesis import given, strategies as st

from eryxd import toml
from tests.requirements import requirement

MANY = toml.MAX_PARTS + 1


@requirement("BKD-4", "CLI-22")
@pytest.mark.parametrize(
    "key",
    [
        "a" + ".a" * toml.MAX_PARTS,
        " . ".join(["a"] * MANY),
        ".".join(["'a'", '"b c"', "d"] * MANY),
        "a" + ".a" * 100_000,
    ],
)
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "[[{}]]", "x = {{ {} = 1 }}"])
def test_a_key_of_too_many_parts_is_refused_before_it_is_parsed(key: str, form: str) -> None:
    """The parser would take memory by the square of them."""
    with pytest.raises(tomllib.TOMLDecodeError, match="line 2"):
        toml.loads("title = 'x'\n" + form.format(key))


@requirement("BKD-4", "CLI-22")
@given(
    st.lists(st.from_regex(r"\A[a-z]{1,3}\Z"), min_size=1, max_size=toml.MAX_PARTS, unique=True),
    st.text(st.characters(codec="ascii", exclude_characters='"\\\x7f', min_codepoint=32), max_size=200),
)
def test_anything_else_reads_as_the_standard_library_reads_it(parts: list[str], value: str) -> None:
    text = f'{".".join(parts)} = "{value}"'

    assert toml.loads(text) == tomllib.loads(text)
