"""What an image leaves out: it is counted, it is said, and nothing beside it goes."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import kubernetes
import pytest

from image import build_tools, cuts, java
from image.__main__ import savings_list, size_table
from image.cuts import SPOKEN_APIS, Cut, Saving, take_out_the_rest
from image.layers import Layer

# --- cuts -----------------------------------------------------------------------------------------
# What is left out is counted, and nothing beside it goes.


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, size in {
        "doc/a/changelog": 10,
        "doc/a/copyright": 7,
        "doc/b/copyright": 5,
        "man/1": 3,
        "man/2/3": 4,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    return tmp_path


def files(tree: Path) -> set[str]:
    return {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}


def test_a_directory_goes_with_all_that_is_in_it(tree: Path) -> None:
    assert cuts.apply([Cut("manuals", ("man",))], tree) == [
        Saving("manuals", files=2, saved_bytes=7)
    ]
    assert files(tree) == {"doc/a/changelog", "doc/a/copyright", "doc/b/copyright"}


def test_what_is_excepted_stays(tree: Path) -> None:
    assert cuts.apply([Cut("documents", ("doc/*/*",), but=("doc/*/copyright",))], tree) == [
        Saving("documents", files=1, saved_bytes=10)
    ]
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


@pytest.mark.parametrize(
    "name", ["copyright", "LICENSE", "METADATA", "RECORD", "status.d", "common-licenses"]
)
def test_no_cut_names_what_people_and_scanners_need(name: str) -> None:
    globs = [
        glob
        for cut in (*cuts.DEBIAN, *cuts.PACKAGES, *cuts.OWN, *java.JARS, *java.PACKAGES)
        for glob in cut.globs
    ]
    assert not [glob for glob in globs if name in glob]


# --- the Kubernetes client ------------------------------------------------------------------------
# Of the Kubernetes client stays what our sources ask for, with all the kinds that it names.


ROOT = Path(__file__).parents[3]


def test_every_group_of_calls_that_our_sources_name_is_kept() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "operator/tidegate").rglob("*.py"))
    asked_for = set(re.findall(r"\bclient\.(\w+)Api\b", sources))
    modules = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() + "_api" for name in asked_for}
    assert modules == set(SPOKEN_APIS)


@pytest.mark.parametrize("name", SPOKEN_APIS)
def test_they_are_where_they_are_looked_for(name: str) -> None:
    assert (Path(kubernetes.__file__).parent / "client" / "api" / f"{name}.py").exists()


def module(site: Path, name: str, *kinds: str) -> None:
    path = site / "kubernetes/client" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(f"    from kubernetes.client.models.{kind} import Kind\n" for kind in kinds)
    )


def left(site: Path) -> set[str]:
    return {path.stem for path in site.rglob("*.py")}


def test_kinds_that_a_kept_kind_names_are_kept_and_others_go(tmp_path: Path) -> None:
    module(tmp_path, "api/custom_objects_api", "pod")
    module(tmp_path, "api/apps_v1_api", "deployment")
    module(tmp_path, "api/__init__")
    module(tmp_path, "models/__init__")
    module(tmp_path, "models/pod", "container", "pod")
    module(tmp_path, "models/container")
    module(tmp_path, "models/deployment", "container")
    (saving,) = take_out_the_rest(tmp_path)
    assert left(tmp_path) == {"custom_objects_api", "__init__", "pod", "container"}
    assert (saving.files, saving.saved_bytes > 0) == (2, True)


def test_nothing_to_take_out_saves_nothing(tmp_path: Path) -> None:
    module(tmp_path, "api/custom_objects_api")
    (saving,) = take_out_the_rest(tmp_path)
    assert (saving.files, saving.saved_bytes) == (0, 0)


def test_packages_without_the_client_have_nothing_to_take_out(tmp_path: Path) -> None:
    assert take_out_the_rest(tmp_path) == []


# --- records of packages --------------------------------------------------------------------------
# A package's RECORD is true after files were left out or changed.


def test_files_that_are_gone_go_and_changed_ones_have_their_new_hash(tmp_path: Path) -> None:
    record = tmp_path / "thing-1.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text(
        "thing.so,sha256=old,999\nthing-1.dist-info/RECORD,,\n../../bin/thing,sha256=old,1\nthing.pyi,sha256=old,1\n"
    )
    (tmp_path / "thing.so").write_bytes(b"stripped")
    build_tools.correct(tmp_path)
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"stripped").digest()).rstrip(b"=").decode()
    assert record.read_text() == f"thing.so,sha256={digest},8\nthing-1.dist-info/RECORD,,\n"


def test_a_name_with_a_comma_stays_one_name(tmp_path: Path) -> None:
    record = tmp_path / "thing-1.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text('"a,b.py",sha256=old,1\n')
    (tmp_path / "a,b.py").touch()
    build_tools.correct(tmp_path)
    assert record.read_text().startswith('"a,b.py",sha256=')


# --- sizes ----------------------------------------------------------------------------------------
# Sizes are said in MB, of each layer and of all.


LAYERS = [
    Layer(
        "base",
        Path("a"),
        "aa",
        30_000_000,
        10_000_000,
        (Saving("manuals", files=3, saved_bytes=1_000_000),),
    ),
    Layer(
        "own",
        Path("b"),
        "bb",
        3_000_000,
        1_234_567,
        (Saving("tests", files=1, saved_bytes=2_500_000),),
    ),
]


def test_layers_are_added_up() -> None:
    assert size_table(LAYERS).splitlines() == [
        "layer         compressed      unpacked  digest",
        "base            10.00 MB      30.00 MB  sha256:aa",
        "own              1.23 MB       3.00 MB  sha256:bb",
        "all             11.23 MB      33.00 MB",
    ]


def test_the_largest_saving_comes_first() -> None:
    savings = [saving for layer in LAYERS for saving in layer.savings]
    assert savings_list(savings).splitlines() == [
        "   2.50 MB in     1 files  tests",
        "   1.00 MB in     3 files  manuals",
    ]


def test_nothing_left_out_says_nothing() -> None:
    assert savings_list([]) == ""
