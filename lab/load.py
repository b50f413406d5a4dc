"""Producers and consumers with a known demand, each in a process of its own.

So one interpreter's lock does not slow the others.

    plan = LoadPlan(
        "alice-0", "produce", kafka.sasl_bootstrap_servers, topic="orders", partitions=(0,),
        duration_seconds=60, max_bytes=2_000_000_000, user="alice",
        password=kafka.password("alice"), steps=(RateStep(0, 25_000_000),),
    )
    with LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace) as client:
        client.wait()
        client.rows()

Every client ends by itself, after its time or its bytes, whichever comes first, and talks to
loopback or lab addresses only.
"""

import ipaddress
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TextIO

from lab import process
from lab.errors import LabError
from lab.network import Namespace
from lab.process import Process


@dataclass(frozen=True)
class RateStep:
    """From `after_seconds` on the client wants `bytes_per_second`; None = flat out, 0 = nothing."""

    after_seconds: float
    bytes_per_second: int | None


class Pacing:
    """The demand of one client over time.

    What could not be moved in time is made up for later, but never more than `catch_up_seconds`
    worth of it: 0 is a client whose demand is gone when it was not served, a large number one that
    keeps a backlog.
    """

    def __init__(self, steps: Sequence[RateStep], *, catch_up_seconds: float) -> None:
        """`steps` in order of time, the first at 0."""
        self._steps = tuple(steps)
        self._catch_up_seconds = catch_up_seconds
        self._owed_bytes = 0.0
        self._seen_seconds = 0.0

    def wait_seconds(self, elapsed_seconds: float) -> float:
        """How long to wait before the next bytes; 0 when they may move now.

        A tenth of a second at a demand of nothing.
        """
        rate = self._rate_at(elapsed_seconds)
        self._owe(rate, elapsed_seconds)
        if rate is None or self._owed_bytes > 0:
            return 0.0
        return 0.1 if rate == 0 else -self._owed_bytes / rate

    def moved(self, moved_bytes: int) -> None:
        """Note that these bytes moved."""
        self._owed_bytes -= moved_bytes

    def _owe(self, rate: int | None, elapsed_seconds: float) -> None:
        if rate is None:
            self._owed_bytes = 0.0
        else:
            grown = self._owed_bytes + rate * (elapsed_seconds - self._seen_seconds)
            # One hundredth of a second is always allowed, or a client that is never behind could
            # not send at all.
            self._owed_bytes = min(grown, rate * max(self._catch_up_seconds, 0.01))
        self._seen_seconds = elapsed_seconds

    def _rate_at(self, elapsed_seconds: float) -> int | None:
        begun = [step for step in self._steps if step.after_seconds <= elapsed_seconds]
        return begun[-1].bytes_per_second if begun else 0


@dataclass
class LoadRow:
    """One client in one second of the wall clock; the first and last of a run are not whole.

    `moved_bytes` were acknowledged (produce) or received (consume). `throttle_milliseconds` is the
    longest delay a broker answered with. `failed` counts messages that were given up, `errors`
    errors of the connection.
    """

    unix_seconds: int
    client: str
    moved_bytes: int = 0
    messages: int = 0
    throttle_milliseconds: int = 0
    failed: int = 0
    errors: int = 0
    bytes_by_partition: dict[int, int] = field(default_factory=dict)


class Meter:
    """Gathers what happens within a second and writes a row when it is over, even an empty one."""

    def __init__(self, client: str, out: TextIO, *, unix_seconds: float) -> None:
        self._out = out
        self._row = LoadRow(int(unix_seconds), client)
        self.total_bytes = 0

    def moved(self, partition: int, moved_bytes: int) -> None:
        """One message was acknowledged or received."""
        self._row.moved_bytes += moved_bytes
        self._row.messages += 1
        self._row.bytes_by_partition[partition] = (
            self._row.bytes_by_partition.get(partition, 0) + moved_bytes
        )
        self.total_bytes += moved_bytes

    def throttled(self, milliseconds: int) -> None:
        """A broker answered with this throttle time."""
        self._row.throttle_milliseconds = max(self._row.throttle_milliseconds, milliseconds)

    def failed(self) -> None:
        """One message was given up."""
        self._row.failed += 1

    def error(self) -> None:
        """The connection or a fetch had an error."""
        self._row.errors += 1

    def tick(self, unix_seconds: float) -> None:
        """Write the rows of all seconds before this moment."""
        while self._row.unix_seconds < int(unix_seconds):
            self._write()
            self._row = LoadRow(self._row.unix_seconds + 1, self._row.client)

    def close(self, unix_seconds: float) -> None:
        """Write what is left, including the second that has just begun."""
        self.tick(unix_seconds)
        self._write()

    def _write(self) -> None:
        self._out.write(json.dumps(asdict(self._row)) + "\n")
        self._out.flush()


def read_rows(path: Path) -> list[LoadRow]:
    """The rows written so far, oldest first; none when the file is not there yet.

    A last line that is still being written is left out.
    """
    try:
        lines = path.read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [_row(json.loads(line)) for line in lines]


def _row(fields: dict[str, Any]) -> LoadRow:
    row = LoadRow(**fields)
    row.bytes_by_partition = {
        int(partition): moved for partition, moved in row.bytes_by_partition.items()
    }
    return row


# How busy the machine's processors were during a phase, and how much of them its host gave to
# others.
#
# A virtual machine on a shared host can lose processor time that nothing in it asked for. A missed
# bound reads differently then.


# proc(5): user nice system idle iowait irq softirq steal; guest times, which follow, are in user
# and nice
_IDLE, _IOWAIT, _STEAL, _COUNTED = 3, 4, 7, 8


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Counters of all processors together since the machine started, in ticks."""

    total: int
    idle: int
    stolen: int

    @classmethod
    def now(cls, source: Path = Path("/proc/stat")) -> Self:
        """The counters of this moment, from the kernel."""
        first_line = source.read_text(encoding="ascii").splitlines()[0]
        ticks = [int(text) for text in first_line.split()[1 : 1 + _COUNTED]]
        return cls(sum(ticks), ticks[_IDLE] + ticks[_IOWAIT], ticks[_STEAL])


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """Shares of all processor time of a phase, in percent: what ran here, what the host took."""

    busy_percent: float
    stolen_percent: float

    @classmethod
    def between(cls, before: ProcessorTimes, after: ProcessorTimes) -> Self:
        """The shares of the time between two moments; zeros when no tick passed."""
        total = after.total - before.total
        if total <= 0:
            return cls(0.0, 0.0)
        stolen = after.stolen - before.stolen
        busy = total - stolen - (after.idle - before.idle)
        return cls(100 * busy / total, 100 * stolen / total)

    def __str__(self) -> str:
        return (
            f"processors {self.busy_percent:.0f} % busy, {self.stolen_percent:.0f} % taken by "
            f"the machine's host"
        )


_REPOSITORY = Path(__file__).parent.parent
_START_GRACE_SECONDS = 30
_ALLOWED_NETWORKS = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("198.18.0.0/15"))


@dataclass(frozen=True)
class LoadPlan:
    """One client: who it is, what it moves, how fast and for how long.

    A consumer starts at the beginning of its partitions and goes back there at their end, so a
    filled topic feeds it for ever. Without `user` it uses the plain listener. `settings` are added
    to librdkafka's.
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
    settings: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> str:
        """The plan as the client's process reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        fields = json.loads(text)
        fields["partitions"] = tuple(fields["partitions"])
        fields["steps"] = tuple(RateStep(**step) for step in fields["steps"])
        fields["settings"] = tuple((key, value) for key, value in fields["settings"])
        return cls(**fields)


class LoadClient:
    """One running client; a context manager that starts and stops it.

    Its rows can be read while it runs and afterwards.
    """

    def __init__(
        self, plan: LoadPlan, directory: Path, *, namespace: Namespace | None = None
    ) -> None:
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
            environment={
                "PYTHONPATH": os.pathsep.join([str(_REPOSITORY), os.environ.get("PYTHONPATH", "")])
            },
        )

    def wait(self) -> None:
        """Return once it has ended by itself.

        Raises `LabError` when it failed or outlived its plan by half a minute.
        """
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
    """Raise `LabError` unless every server is a loopback or 198.18.0.0/15 address.

    Load never leaves the machine.
    """
    for server in bootstrap_servers.split(","):
        host = server.rpartition(":")[0]
        if not _is_of_the_lab(host):
            raise LabError(
                f"No load is sent to {server!r}: load clients talk to 127.0.0.0/8 and "
                f"198.18.0.0/15 only. Use a cluster of the lab."
            )


def _is_of_the_lab(host: str) -> bool:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return False
    return any(address in network for network in _ALLOWED_NETWORKS)
