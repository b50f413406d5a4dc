"""Producers and consumers with a known demand, each in a process of its own so that one interpreter's lock does not slow the others.

    plan = LoadPlan("alice-0", "produce", kafka.sasl_bootstrap_servers, topic="orders", partitions=(0,), duration_seconds=60,
                    max_bytes=2_000_000_000, user="alice", password=kafka.password("alice"), steps=(RateStep(0, 25_000_000),))
    with LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace) as client:
        client.wait()
        client.rows()

Every client ends by itself, after its time or its bytes, whichever comes first, and talks to loopback or lab addresses only.
"""

from __future__ import annotations

import ipaddress
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

from lab import process
from lab.errors import LabError
from lab.load_rows import LoadRow, read_rows
from lab.network import Namespace
from lab.pacing import RateStep
from lab.process import Process

_REPOSITORY = Path(__file__).parent.parent
_START_GRACE_SECONDS = 30
_ALLOWED_NETWORKS = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("198.18.0.0/15"))


@dataclass(frozen=True)
class LoadPlan:
    """One client: who it is, what it moves, how fast and for how long.

    A consumer starts at the beginning of its partitions and goes back there at their end, so a filled topic feeds it for ever.
    Without `user` it uses the plain listener. `settings` are added to librdkafka's.
    """

    name: str
    mode: Literal["produce", "consume"]
    bootstrap_servers: str
    topic: str
    partitions: tuple[int, ...]
    duration_seconds: float
    max_bytes: int
    user: str | None = None
    password: str | None = None
    client_id: str = "load"
    steps: tuple[RateStep, ...] = (RateStep(0, None),)
    catch_up_seconds: float = 2.0
    message_bytes: int = 10_000
    settings: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> str:
        """The plan as the client's process reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LoadPlan:
        """What `to_json` wrote."""
        fields = json.loads(text)
        fields["partitions"] = tuple(fields["partitions"])
        fields["steps"] = tuple(RateStep(**step) for step in fields["steps"])
        fields["settings"] = tuple((key, value) for key, value in fields["settings"])
        return cls(**fields)


class LoadClient:
    """One running client; a context manager that starts and stops it. Its rows can be read while it runs and afterwards."""

    def __init__(self, plan: LoadPlan, directory: Path, *, namespace: Namespace | None = None) -> None:
        """`LabError` when the plan leads to an address outside loopback and the lab's networks."""
        refuse_foreign_addresses(plan.bootstrap_servers)
        self.plan = plan
        self._directory = directory
        self._namespace = namespace
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def process(self) -> Process:
        """Its process, running or ended."""
        if self._process is None:
            raise RuntimeError(f"load client {self.plan.name} was not started yet")
        return self._process

    def start(self) -> None:
        """Start it; its time begins when its connection is set up."""
        self._directory.mkdir(parents=True, exist_ok=True)
        plan_path = self._directory / f"{self.plan.name}.plan.json"
        plan_path.write_text(self.plan.to_json())
        self._process = process.start(
            f"load-{self.plan.name}",
            [sys.executable, "-m", "lab.load_client", str(plan_path), str(self._rows_path)],
            log_path=self._directory / f"{self.plan.name}.log",
            namespace=self._namespace.name if self._namespace else None,
            environment={"PYTHONPATH": os.pathsep.join([str(_REPOSITORY), os.environ.get("PYTHONPATH", "")])},
        )

    def wait(self) -> None:
        """Return once it has ended by itself; `LabError` when it failed or outlived its plan by half a minute."""
        self.process.expect_success(self.plan.duration_seconds + _START_GRACE_SECONDS)

    def stop(self) -> None:
        """End it now, with its last row written. Nothing happens when it has ended."""
        if self._process is not None:
            self._process.stop()

    def is_running(self) -> bool:
        """Whether it still moves bytes, or tries to."""
        return self._process is not None and self._process.is_running()

    def rows(self) -> list[LoadRow]:
        """What it did so far, one row a second."""
        return read_rows(self._rows_path)

    @property
    def _rows_path(self) -> Path:
        return self._directory / f"{self.plan.name}.rows.jsonl"


def refuse_foreign_addresses(bootstrap_servers: str) -> None:
    """Raise `LabError` unless every server is a loopback or 198.18.0.0/15 address: load never leaves the machine."""
    for server in bootstrap_servers.split(","):
        host = server.rpartition(":")[0]
        if not _is_of_the_lab(host):
            raise LabError(
                f"No load is sent to {server!r}: load clients talk to 127.0.0.0/8 and 198.18.0.0/15 only. Use a cluster of the lab."
            )


def _is_of_the_lab(host: str) -> bool:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return False
    return any(address in network for network in _ALLOWED_NETWORKS)
