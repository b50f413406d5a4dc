"""What is said of versions of Kubernetes is what `make test-crds` asks."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from lab.kubernetes.admission import ADMISSIONS
from lab.kubernetes.tools import KUBERNETES_VERSION

CHECKOUT = Path(__file__).parents[3]
_PINNED = re.compile(r"k8s\.io/(\S+) v0(\.\d+\.\d+)")


def pinned(minor: str) -> Mapping[str, str]:
    """The version of Kubernetes that each of its libraries is pinned to."""
    module = ADMISSIONS[minor]
    text = (module.directory / module.pins).read_text()
    return {library: f"1{version}" for library, version in _PINNED.findall(text)}


VERSIONS = {minor: pinned(minor)["apiextensions-apiserver"] for minor in ADMISSIONS}


@pytest.mark.parametrize("minor", ADMISSIONS)
def test_every_library_is_of_the_version_that_is_named(minor: str) -> None:
    libraries = pinned(minor)
    released = {"api", "apiextensions-apiserver", "apimachinery", "apiserver", "client-go"}
    assert released <= set(libraries)
    assert {libraries[library] for library in released} == {VERSIONS[minor]}
    assert VERSIONS[minor].startswith(f"{minor}.")


def test_the_newest_is_the_one_that_the_lab_runs() -> None:
    assert f"v{list(VERSIONS.values())[-1]}" == KUBERNETES_VERSION


def test_the_chart_takes_no_kubernetes_older_than_the_oldest() -> None:
    chart = yaml.safe_load((CHECKOUT / "charts" / "tidegate" / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={next(iter(ADMISSIONS))}.0-0"


@pytest.mark.parametrize("page", ["docs/resources.md", "docs/known-limits.md"])
def test_the_pages_name_each_version_that_is_asked(page: str) -> None:
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    assert [version for version in VERSIONS.values() if version not in text] == []
