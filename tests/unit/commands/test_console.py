"""`tidegate console`, as far as it goes without a browser: what it refuses, and what a page shows
while nothing answers.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests
from hatchling.builders.wheel import WheelBuilder

from lab.network import free_port
from lab.process import patience
from tidegate.commands.console import EVENING as PACKAGED

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: a, user: {}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""


def started(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    return subprocess.Popen(
        [sys.executable, "-m", "tidegate", "console", f"--kubeconfig={kubeconfig}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=tmp_path,
    )


def test_other_machines_are_let_in_only_with_a_login(tmp_path: Path) -> None:
    process = started(tmp_path, "--host=0.0.0.0")
    _, said = process.communicate(timeout=patience(60))
    assert process.returncode == 1
    assert "--login" in said
    assert "Nothing was started" in said


ROOT = Path(__file__).parents[3]
EVENING = ROOT / "examples" / "simulate" / "evening-backfill.yaml"


def test_the_wheel_has_the_evening_that_is_played_without_a_file() -> None:
    builder = WheelBuilder(str(ROOT))
    packed = {file.distribution_path: file.path for file in builder.recurse_included_files()}
    place = Path(packed["tidegate/commands/evening-backfill.yaml"])
    assert place.read_bytes() == EVENING.read_bytes()
    assert place == PACKAGED


def test_a_load_is_played_without_any_cluster(tmp_path: Path) -> None:
    port = free_port()
    process = started(tmp_path, "--play", f"--port={port}", "--speed=60")
    try:
        address, text, until = f"http://127.0.0.1:{port}/", "", time.monotonic() + patience(60)
        while "This load is simulated" not in text and time.monotonic() < until:
            assert process.poll() is None
            try:
                text = requests.get(address, timeout=patience(5)).text
            except requests.ConnectionError:
                time.sleep(0.1)
        assert "This load is simulated" in text
        assert "mode Enforce" in text
        second = started(tmp_path, "--play", str(EVENING), f"--port={port}")
        _, said = second.communicate(timeout=patience(60))
        assert second.returncode == 1
        assert f"cannot listen on port {port}" in said
        assert "The console is at" not in said
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=patience(60))


def test_a_played_load_has_no_logins_namespaces_or_trails(tmp_path: Path) -> None:
    process = started(tmp_path, "--play", "--login")
    _, said = process.communicate(timeout=patience(60))
    assert process.returncode == 1
    assert "--login" in said
    assert "Nothing was started" in said


def test_a_file_that_cannot_be_played_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    process = started(tmp_path, "--play", "missing.yaml")
    _, said = process.communicate(timeout=patience(60))
    assert process.returncode == 1
    assert "missing.yaml" in said
    assert "The console is at" not in said


def test_a_file_without_play_is_refused_with_the_command_that_plays_it(tmp_path: Path) -> None:
    process = started(tmp_path, "evening.yaml")
    _, said = process.communicate(timeout=patience(60))
    assert process.returncode == 1
    assert "tidegate console --play evening.yaml" in " ".join(said.split())


@pytest.mark.skipif(not hasattr(signal, "SIGTERM"), reason="no signals here")
def test_it_serves_and_says_what_is_missing_while_kubernetes_is_away(tmp_path: Path) -> None:
    port = free_port()
    process = started(tmp_path, f"--port={port}")
    try:
        address, text, until = f"http://127.0.0.1:{port}/", "", time.monotonic() + patience(60)
        while "Kubernetes does not answer" not in text and time.monotonic() < until:
            assert process.poll() is None
            try:
                text = requests.get(address, timeout=patience(5)).text
            except requests.ConnectionError:
                time.sleep(0.1)
        assert "Kubernetes does not answer, last known never" in text
        assert "No policy is known" in text
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=patience(30))
    assert f"The console is at http://127.0.0.1:{port}/" in said
    assert "Traceback" not in said
