"""CRDs that are deleted while the operator runs: it says what it says when it starts before them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.kubernetes.api import KubeApi
from lab.process import started
from tests.integration.conftest import CHECKOUT
from tests.integration.operator.operator_process import OperatorProcess

pytestmark = pytest.mark.integration


@pytest.fixture
def own_api() -> Iterator[KubeApi]:
    """A Kubernetes API of this test alone: others want the CRDs."""
    with started(KubeApi) as api:
        api.install_crds(CHECKOUT / "crds")
        api.kubectl("create", "namespace", "streaming")
        yield api


def test_crds_that_are_gone_at_run_time_are_named_as_at_the_start(
    own_api: KubeApi, tmp_path: Path
) -> None:
    told = []
    with OperatorProcess(own_api, "streaming", tmp_path, name="running") as operator:
        operator.wait_for("Operator started")
        assert operator.liveness() == 200
        own_api.kubectl("delete", "--wait", "-f", str(CHECKOUT / "crds"))
        assert operator.exit_code(120) == 1
        told.append((tmp_path / "running.log").read_text())
    with OperatorProcess(own_api, "streaming", tmp_path, name="starting") as operator:
        assert operator.exit_code(60) == 1
        told.append((tmp_path / "starting.log").read_text())
    for text in told:
        words = " ".join(text.split())
        assert "error: Kubernetes does not serve" in words
        assert "Install the CRDs" in words
        assert "a bug" not in words
        # what kopf's other watches log beside it, a line of JSON each, is not for people
        assert "Traceback" not in words.partition("error:")[2].partition("{")[0]
