"""A lab leaves the machine as it found it: after its end, a failed start, Ctrl-C, and after it was
killed outright.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab import cache
from lab.cache import RunDirectory
from lab.errors import LabError
from lab.kafka import KafkaLab
from lab.network import Network
from lab.process import patience, wait_until
from lab.zookeeper import ZooKeeperLab

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[2]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

KEEPS_A_LAB = """
import os, signal, sys
from lab.kafka import KafkaLab
with KafkaLab(brokers=1, namespaces=os.geteuid() == 0) as kafka:
    print(kafka.lab_id, flush=True)
    signal.pause()
"""


@contextmanager
def lab_of_another_process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another interpreter that holds a lab of one broker open, and that lab's id."""
    command = [sys.executable, "-c", KEEPS_A_LAB]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=REPOSITORY
    ) as keeper:
        try:
            assert keeper.stdout is not None
            lab_id = keeper.stdout.readline().strip()
            assert traces_of(lab_id), "a running lab shows"
            yield keeper, lab_id
        finally:
            keeper.kill()


def traces_of(lab_id: str) -> list[str]:
    """Processes that work in the lab's directory, its directory, its namespaces and its links."""
    directory = cache.runs_root() / lab_id
    files = [str(directory)] if directory.exists() else []
    listing = subprocess.run(
        "ip -br link; ip netns list", shell=True, capture_output=True, text=True, check=True
    ).stdout
    return (
        processes_of(lab_id)
        + files
        + [line for line in listing.splitlines() if line.startswith(f"tg{lab_id}")]
    )


def processes_of(lab_id: str) -> list[str]:
    directory = str(cache.runs_root() / lab_id)
    return [
        command
        for process in Path("/proc").glob("[0-9]*")
        if directory in (command := command_line(process))
    ]


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def test_ctrl_c_leaves_nothing() -> None:
    with lab_of_another_process() as (keeper, lab_id):
        keeper.send_signal(signal.SIGINT)
        keeper.wait(patience(30))
        assert traces_of(lab_id) == []


def test_a_killed_labs_processes_end_with_it_and_the_next_lab_clears_the_rest() -> None:
    with lab_of_another_process() as (keeper, lab_id):
        keeper.kill()
        keeper.wait(patience(30))
        wait_until(
            lambda: not processes_of(lab_id),
            "the killed lab's processes to end",
            timeout_seconds=10,
        )
        with RunDirectory():
            assert traces_of(lab_id) == []


def test_a_broker_that_cannot_start_shows_its_log_and_leaves_nothing() -> None:
    lab = KafkaLab(brokers=1, server_properties={"zookeeper.session.timeout.ms": "soon"})
    with pytest.raises(LabError, match=r"broker-1(.|\n)*zookeeper\.session\.timeout\.ms"), lab:
        pytest.fail("it started")
    assert traces_of(lab.lab_id) == []


def test_two_zookeepers_run_side_by_side() -> None:
    with ZooKeeperLab() as first, ZooKeeperLab() as second:
        assert first.port != second.port
        assert first.process.is_running()
        assert second.process.is_running()


@needs_root
def test_two_labs_with_namespaces_run_side_by_side_and_the_end_of_one_spares_the_other() -> None:
    with KafkaLab(brokers=1, namespaces=True) as staying:
        with KafkaLab(brokers=1, namespaces=True) as leaving:
            assert staying.bootstrap_servers != leaving.bootstrap_servers
            assert staying.cluster_id != leaving.cluster_id
        assert traces_of(leaving.lab_id) == []
        staying.create_topic("orders", [[1]])
        assert staying.leaders("orders") == {0: 1}
    assert traces_of(staying.lab_id) == []


@needs_root
def test_a_nic_can_be_made_slow() -> None:
    with RunDirectory() as run:
        network = Network(run)
        machine = network.add("m1", 11)
        network.limit_egress(machine, 5_000_000)
        shown = subprocess.run(
            ["tc", "-n", machine.name, "qdisc", "show", "dev", "eth0"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "tbf" in shown.stdout
        assert "rate 40Mbit" in shown.stdout
    assert traces_of(run.lab_id) == []
