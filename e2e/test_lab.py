"""A cluster of the lab leaves nothing behind, even when the process that started it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab import cache
from lab.kubernetes import node_remains

_PODS = "containers"  # the control group below the lab's own
_OPENED = """
import time
from lab.kafka import KafkaLab
from lab.kubernetes.kind import KindLab
with KafkaLab(brokers=1, namespaces=True) as kafka, KindLab(kafka.bridge) as node:
    node.kubectl("create", "namespace", "a-pod")
    namespace = "--namespace=a-pod"
    image = ("--image=localhost/pause:lab", "--image-pull-policy=Never")
    node.kubectl("run", "sleeper", *image, namespace)
    ready = ("--for=condition=Ready", "--timeout=60s")
    node.kubectl("wait", "pod/sleeper", *ready, namespace, timeout_seconds=70)
    print(kafka.lab_id, node.directory.parent.name, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(
    "KUBECONFIG" in os.environ and os.environ.get("LAB") != "kind", reason="about the lab's cluster"
)
def test_a_killed_lab_is_cleared_by_the_next_one() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OPENED],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert owner.stdout is not None
    ids = owner.stdout.readline().split()
    groups = node_remains.places(f"tidegate-{ids[1]}")
    assert any((group / _PODS).is_dir() for group in groups)

    owner.send_signal(signal.SIGKILL)
    owner.wait(timeout=10)
    owner.stdout.close()
    cache.sweep()

    assert node_remains.places(f"tidegate-{ids[1]}") == []
    assert not [
        line for line in Path("/proc/mounts").read_text().splitlines() if f"/run/{ids[1]}/" in line
    ]
    interfaces = subprocess.run(
        ["ip", "-o", "link"], capture_output=True, text=True, check=True
    ).stdout
    assert f"tg{ids[0]}" not in interfaces
    assert not (cache.runs_root() / ids[1]).exists()
