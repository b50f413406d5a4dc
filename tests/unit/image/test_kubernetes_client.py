"""Of the Kubernetes client stays what our sources ask for, with all the kinds that it names."""

from __future__ import annotations

import re
from pathlib import Path

import kubernetes
import pytest

from image.cuts import SPOKEN_APIS, Saving, take_out_the_rest

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
    path.write_text("".join(f"    from kubernetes.client.models.{kind} import Kind\n" for kind in kinds))


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
    saving = take_out_the_rest(tmp_path)
    assert left(tmp_path) == {"custom_objects_api", "__init__", "pod", "container"}
    assert (saving.files, saving.saved_bytes > 0) == (2, True)


def test_nothing_to_take_out_saves_nothing(tmp_path: Path) -> None:
    module(tmp_path, "api/custom_objects_api")
    assert take_out_the_rest(tmp_path) == Saving(take_out_the_rest(tmp_path).name, files=0, saved_bytes=0)
