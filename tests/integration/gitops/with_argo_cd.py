"""Tests of the health samples and Applications with Argo CD's own interpreter and schemas.

`make test-argo` runs them. `make test` does not, so the file has another name: the first run
compiles a part of Argo CD for minutes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.kubernetes import tools
from lab.kubernetes.api import KubeApi
from tests.unit.gitops.samples import CHECKOUT, SAMPLES, SCRIPTS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.parent.name)
def test_argo_cd_shows_every_sample_as_expected(script: Path, tmp_path: Path) -> None:
    chosen = [sample for sample in SAMPLES if sample.script == script]
    paths = [tmp_path / f"{sample.path.stem}.json" for sample in chosen]
    for sample, path in zip(chosen, paths, strict=True):
        path.write_text(json.dumps(sample.document))
    shown = tools.health_of(script, paths)
    assert [{key: value for key, value in one.items() if value} for one in shown] == [
        sample.expected for sample in chosen
    ]


@pytest.mark.parametrize(
    "outlawed",
    [
        "string.upper('a')",
        "('a'):upper()",
        "io.open('/etc/passwd')",
        "os.execute('true')",
        "math.max(1, 2)",
    ],
)
def test_argo_cd_lacks_what_the_lua_of_the_daily_tests_lacks(outlawed: str, tmp_path: Path) -> None:
    script, document = tmp_path / "health.lua", tmp_path / "object.json"
    script.write_text(f"return {{status = {outlawed}}}")
    document.write_text("{}")
    with pytest.raises(LabError, match="attempt to"):
        tools.health_of(script, [document])


def test_the_applications_are_what_argo_cds_schemas_allow(kube_api: KubeApi) -> None:
    kube_api.install_crds(
        *(tools.argo_cd_crds() / f"{kind}-crd.yaml" for kind in ("application", "appproject"))
    )
    kube_api.kubectl("create", "namespace", "argocd")
    folder = str(CHECKOUT / "examples" / "argocd")
    applied = kube_api.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "--recursive",
        "-f",
        folder,
    ).splitlines()
    assert len(applied) == 5
