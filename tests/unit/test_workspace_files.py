"""Files of `workspace.d` as texts: parsed with the place of everything, or with every problem."""

from pathlib import Path

from hypothesis import given, strategies as st

from eryxd.daemon.workspace_files import parse, read
from eryxd.domain.origin import FileOrigin
from tests.documents import ROOT, blocks
from tests.requirements import requirement

PATTERN = '[patterns.{id}]\nname = "{id}"\nmode = "single"\nagents = [{{ id = "a", name = "A" }}]\n'


def test_the_examples_of_the_page_can_be_taken_over() -> None:
    texts = {f"{n}.toml": one.text for n, one in enumerate(blocks(ROOT / "docs/files.md")) if one.language == "toml"}
    found = parse(texts)

    assert found.problems == ()
    assert [one.draft.id for one in found.patterns] == ["review"]
    assert [(one.provider, one.id, one.project) for one in found.entries] == [("make", "web", "/home/you/web")]


@requirement("FIL-4")
def test_every_problem_is_named_with_its_file_and_line() -> None:
    found = parse(
        {
            "a.toml": "[patterns.x",
            "b.toml": "\n[patterns.bad]\nname = 7\n[patterns.Upper]\nname = 'x'\n[other]\n",
            "c.toml": "[providers.mcp.git]\ncommand = 'x'\n\n[providers.mcp.two]\nproject = 1\n",
            "d.toml": PATTERN.format(id="late") + "revision = 3\n",
        }
    )

    expected = (
        "a.toml is not TOML",
        "b.toml: 'other' is neither",
        "b.toml: patterns.Upper: an id has lower-case",
        "b.toml, line 2: the pattern 'bad'",
        "c.toml, line 1: the entry mcp:git: 'command' is none of",
        "c.toml, line 4: the entry mcp:two: `project` is the path",
        "d.toml, line 1: the pattern 'late': revision follows from the file",
    )
    assert len(found.problems) == len(expected)
    for start in expected:
        assert any(problem.startswith(start) for problem in found.problems), (start, found.problems)


@requirement("FIL-2")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(("x", "y", "z"))), unique=True))
def test_what_stands_twice_is_in_neither_whatever_the_order(places: list[tuple[str, str]]) -> None:
    """And each is named with all its places."""
    texts: dict[str, str] = {}
    for file, id in places:
        texts[f"{file}.toml"] = texts.get(f"{file}.toml", "") + PATTERN.format(id=id)
    found = parse(texts)
    counts = {id: sum(one == id for _, one in places) for _, id in places}

    assert sorted(str(one.draft.id) for one in found.patterns) == sorted(
        id for id, count in counts.items() if count == 1
    )
    assert len(found.warnings) == sum(count > 1 for count in counts.values())
    assert found == parse(dict(reversed(texts.items())))


@requirement("FIL-3")
def test_the_revision_follows_from_the_text_and_nothing_else() -> None:
    text = PATTERN.format(id="x")
    (one,), (same,), (other,) = (
        parse(texts).patterns
        for texts in ({"a.toml": text}, {"b.toml": f"\n{text}"}, {"a.toml": text.replace('"A"', '"B"')})
    )

    assert one.revision == same.revision != other.revision
    assert 0 < one.revision < 2**53
    assert (one.origin, same.origin) == (FileOrigin(file="a.toml", line=1), FileOrigin(file="b.toml", line=2))


@requirement("FIL-4")
def test_what_cannot_be_read_or_trusted_is_a_problem_and_no_folder_is_no_file(tmp_path: Path) -> None:
    assert read(tmp_path) == ({}, [])
    folder = tmp_path / "workspace.d"
    folder.mkdir()
    (folder / "fine.toml").write_text("x = 1\n")
    (folder / ".hidden.toml").write_text("x")
    (folder / "note.txt").write_text("x")
    (folder / "open.toml").write_text("x = 1\n")
    (folder / "open.toml").chmod(0o666)
    (folder / "latin.toml").write_bytes(b"\xff")
    texts, problems = read(tmp_path)

    assert texts == {str(folder / "fine.toml"): "x = 1\n"}
    assert len(problems) == 2
    assert any("chmod go-w" in problem for problem in problems)
    (folder / "fine.toml").unlink()
    folder.chmod(0o777)
    assert "chmod go-w" in read(tmp_path)[1][0]
