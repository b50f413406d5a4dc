"""The rights of `examples/rights/` suffice: with exactly these the operator does its whole work, and nothing is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from tests.integration.operator.installation import one_of_each_kind
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

RIGHTS = Path(__file__).parents[3] / "examples" / "rights"
COMMAND = [sys.executable, "-m", "tidegate", "run", "--listen-address", "127.0.0.1", "--liveness-port", "0", "--metrics-port", "0"]


@pytest.fixture
def kubeconfig(crds: KubeApi, tmp_path: Path) -> Path:
    """The ServiceAccount of the example, with a token of its own."""
    crds.kubectl("apply", "-f", str(RIGHTS))
    token = crds.kubectl("create", "token", "tidegate", "--namespace=tidegate", "--duration=1h").strip()
    return crds.kubeconfig_for(token=token, path=tmp_path / "tidegate.kubeconfig")


def test_the_documented_rights_are_enough_for_everything(
    crds: KubeApi, kafka: KafkaLab, kubeconfig: Path, namespace: str, unique_name: str, tmp_path: Path
) -> None:
    kafka.create_topic(unique_name, assignment=[[1, 2], [2, 3], [3, 1]])
    log_path = tmp_path / "operator.log"
    with log_path.open("wb") as log:
        operator = subprocess.Popen([*COMMAND, "--kubeconfig", str(kubeconfig)], stdout=log, stderr=subprocess.STDOUT)
    try:
        crds.kubectl("apply", "-f", "-", input=json.dumps(one_of_each_kind(kafka, namespace, unique_name)))
        crds.kubectl("wait", "--for=condition=Ready", "bbp/orders", "bt/gold", "qo/more", "-n", namespace, "--timeout=60s")
        wait_until(
            lambda: "FirstQuota" in crds.kubectl("get", "events", "-n", namespace), "the event of the first quota", timeout_seconds=30
        )
        assert "tidegate" in crds.kubectl("get", "lease", "-n", namespace)
        crds.kubectl("delete", "bbp", "orders", "-n", namespace, "--timeout=60s")
    finally:
        operator.terminate()
        assert operator.wait(timeout=30) == 0
    store = ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect)))
    assert store.facts().owner_policy_key is None
    store.close()
    assert not [line for line in log_path.read_text().splitlines() if re.search(r"forbidden|\b403\b", line, re.IGNORECASE)]
