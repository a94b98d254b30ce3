"""No path leaves the project, whatever it is made of."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from eryxd.backends.confine import Refused, open_folder, open_regular, read_all, resolve
from tests.requirements import requirement

NAMES = ("a", "b", "..", ".", "project", "project2", "link")
relative = st.lists(st.sampled_from(NAMES), min_size=1, max_size=6).map("/".join)


@st.composite
def tangles(draw: st.DrawFn) -> list[tuple[str, str, bool]]:
    """Places in a folder that holds the project, each with a symlink's target, absolute or not."""
    return draw(st.lists(st.tuples(relative, relative, st.booleans()), max_size=8))


def build(base: Path, tangle: list[tuple[str, str, bool]]) -> Path:
    """Make a project with a sibling of nearly its name, a file in each, and the symlinks that fit."""
    for name in ("project/a/b", "project2/a"):
        (base / name).mkdir(parents=True)
        (base / name / "secret").write_text(name)
    for place, target, is_absolute in tangle:
        link = Path(os.path.normpath(base / "project" / place))
        if link.is_relative_to(base) and not os.path.lexists(link):
            try:
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(base / target if is_absolute else target)
            except OSError:
                # Its parent is a link in a circle, or to nowhere.
                continue
    return base / "project"


@requirement("RTL-1")
@settings(deadline=None, max_examples=200)
@given(tangles(), relative, st.booleans())
def test_an_accepted_path_really_lies_in_the_project(
    tangle: list[tuple[str, str, bool]], path: str, is_absolute: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = build(Path(folder).resolve(), tangle)
        try:
            accepted = resolve(str(project), str(project / path) if is_absolute else path)
        except Refused:
            return

        real = Path(os.path.realpath(accepted))
        assert real == accepted
        assert real.is_relative_to(project)


@settings(deadline=None, max_examples=100)
@given(tangles(), relative)
def test_what_is_refused_really_lies_outside(tangle: list[tuple[str, str, bool]], path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = build(Path(folder).resolve(), tangle)
        try:
            resolve(str(project), path)
        except Refused:
            assert not Path(os.path.realpath(project / path)).is_relative_to(project)


@given(st.text(max_size=20))
def test_any_text_is_accepted_or_refused(path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            accepted = resolve(folder, path)
        except Refused:
            return
        assert accepted.is_relative_to(os.path.realpath(folder))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return build(tmp_path, [])


@pytest.mark.parametrize("path", ["", "a\0b", "..", "../project2/a", "a/../../project2", "/", "/etc/passwd", "\ud800"])
def test_refused(project: Path, path: str) -> None:
    with pytest.raises(Refused):
        resolve(str(project), path)


@pytest.mark.parametrize("path", [".", "a/..", "a/../a/b/secret", "new/file", "a/b/secret/.."])
def test_accepted(project: Path, path: str) -> None:
    assert resolve(str(project), path) == Path(os.path.normpath(project / path))


def test_a_sibling_that_begins_alike_is_outside(project: Path) -> None:
    with pytest.raises(Refused):
        resolve(str(project), f"{project}2/a")


@requirement("RTL-1")
def test_a_project_folder_that_has_become_a_symlink_is_refused(project: Path, tmp_path: Path) -> None:
    """It was added by its real path; what it leads to now nobody has added."""
    (tmp_path / "alias").symlink_to(project)

    with pytest.raises(Refused):
        resolve(str(tmp_path / "alias"), "a")


def test_a_project_that_vanished_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        resolve(str(tmp_path / "gone"), "a")


@requirement("RTL-1")
def test_a_folder_swapped_for_a_symlink_after_the_check_is_not_followed(project: Path) -> None:
    target = resolve(str(project), "a/b/secret")
    (project / "a").rename(project / "moved")
    (project / "a").symlink_to(project.parent / "project2")

    with pytest.raises(NotADirectoryError), open_folder(str(project), target.parent):
        pass


@requirement("RTL-1")
def test_a_file_swapped_for_a_symlink_after_the_check_is_not_followed(project: Path) -> None:
    target = resolve(str(project), "a/b/secret")
    target.unlink()
    target.symlink_to(project.parent / "project2" / "a" / "secret")

    with open_folder(str(project), target.parent) as folder, pytest.raises(Refused):
        open_regular(folder, target.name)


def test_a_file_is_read_through_its_folder(project: Path) -> None:
    target = resolve(str(project), "a/b/secret")

    with open_folder(str(project), target.parent) as folder:
        assert read_all(open_regular(folder, target.name)) == b"project/a/b"


def test_opening_leaks_no_descriptor(project: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for missing in ("a/b/missing/deeper", "missing"):
        with pytest.raises(FileNotFoundError), open_folder(str(project), project / missing):
            pass
    with open_folder(str(project), project / "a") as folder, pytest.raises(Refused):
        open_regular(folder, "b")

    assert len(os.listdir("/proc/self/fd")) == before
