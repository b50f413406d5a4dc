"""What is left out is counted, and nothing beside it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from image import cuts, java
from image.cuts import Cut, Saving


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, size in {"doc/a/changelog": 10, "doc/a/copyright": 7, "doc/b/copyright": 5, "man/1": 3, "man/2/3": 4}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    return tmp_path


def files(tree: Path) -> set[str]:
    return {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}


def test_a_directory_goes_with_all_that_is_in_it(tree: Path) -> None:
    assert cuts.apply([Cut("manuals", ("man",))], tree) == [Saving("manuals", files=2, saved_bytes=7)]
    assert files(tree) == {"doc/a/changelog", "doc/a/copyright", "doc/b/copyright"}


def test_what_is_excepted_stays(tree: Path) -> None:
    assert cuts.apply([Cut("documents", ("doc/*/*",), but=("doc/*/copyright",))], tree) == [Saving("documents", files=1, saved_bytes=10)]
    assert {"doc/a/copyright", "doc/b/copyright"} <= files(tree)


def test_what_two_globs_name_is_counted_once(tree: Path) -> None:
    assert cuts.apply([Cut("manuals", ("man/1", "man/*"))], tree)[0].saved_bytes == 7


def test_nothing_found_saves_nothing(tree: Path) -> None:
    assert cuts.apply([Cut("games", ("games",))], tree) == [Saving("games", files=0, saved_bytes=0)]


def test_a_link_goes_and_what_it_points_to_stays(tree: Path) -> None:
    (tree / "link").symlink_to("man")
    cuts.apply([Cut("link", ("link",))], tree)
    assert not (tree / "link").is_symlink()
    assert "man/1" in files(tree)


@pytest.mark.parametrize("name", ["copyright", "LICENSE", "METADATA", "RECORD", "status.d", "common-licenses"])
def test_no_cut_names_what_people_and_scanners_need(name: str) -> None:
    globs = [glob for cut in (*cuts.DEBIAN, *cuts.PACKAGES, *cuts.OWN, *java.JARS, *java.PACKAGES) for glob in cut.globs]
    assert not [glob for glob in globs if name in glob]
