"""Operator and console as a user whom no passwd file names, as a platform may choose one for a Pod.

The user is one of a namespace, outside of which the files belong to the user who runs the test.
"""

import random
import urllib.request
from pathlib import Path

import pytest

from lab.kubernetes.api import KubeApi
from lab.network import free_port
from lab.operator import console_command
from lab.process import patience, start, wait_until
from tests.integration.operator.operator_process import OperatorProcess

pytestmark = pytest.mark.integration

# a platform gives each namespace ten thousand ids of its own
A_USER = random.randrange(1_000_000_000, 2_000_000_000)
AS_ANY_USER = (
    *("unshare", "--user", f"--map-user={A_USER}", "--map-group=0"),
    *("env", "-u", "USER", "-u", "LOGNAME", "-u", "LNAME", "-u", "USERNAME", "-u", "HOME"),
)


def test_the_operator_serves_as_any_user(crds: KubeApi, namespace: str, tmp_path: Path) -> None:
    with OperatorProcess(crds, namespace, tmp_path, under=AS_ANY_USER) as operator:
        assert operator.liveness() == 200


def test_the_console_serves_as_any_user(crds: KubeApi, namespace: str, tmp_path: Path) -> None:
    port = free_port()
    command = console_command(
        crds.kubeconfig, namespace, port=port, audit_file=tmp_path / "audit.jsonl"
    )
    console = start("console", [*AS_ANY_USER, *command], log_path=tmp_path / "console.log")
    try:
        wait_until(
            lambda: _status(port) == 200,
            "the console's page",
            timeout_seconds=90,
            processes=[console],
        )
    finally:
        console.kill()


def _status(port: int) -> int:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/healthz", timeout=patience(10)
        ) as answer:
            return int(answer.status)
    except OSError:
        return 0
