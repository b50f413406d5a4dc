"""Measured figures with their bounds: how they are taken, kept on disk and written as a page.

What a command costs with all its processes, statistics of several runs, and measuring again where
the machine's host took the processors.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from statistics import median
from typing import Self

import psutil

from lab.load import ProcessorShare, ProcessorTimes
from lab.machine import describe_machine

# What a command cost with all processes that it started: seconds of the clock and of the
# processors, and the most memory at once.
#
# Memory is the sum of resident sets, which counts what processes share once for each of them: it is
# never too small.


_LOOK_SECONDS = 0.05
_TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Cost:
    """`output` is what the command said on standard output."""

    seconds: float
    processor_seconds: float
    peak_bytes: int
    output: str

    @property
    def note(self) -> str:
        """For a figure of one of the three: the others."""
        return (
            f"{self.seconds:.1f} s, {self.processor_seconds:.1f} s of processors, "
            f"{self.peak_bytes / 1e6:,.0f} MB"
        )


@dataclass(slots=True)
class _Watch:
    """What was seen of a tree of processes so far.

    A process that ends between two looks loses what it did since the last.
    """

    peak_bytes: int = 0
    processor_seconds: dict[tuple[int, float], float] = field(default_factory=dict)

    def look(self, root: psutil.Process) -> None:
        resident = 0
        for one in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                self.processor_seconds[one.pid, one.create_time()] = times.user + times.system
                resident += one.memory_info().rss
        self.peak_bytes = max(self.peak_bytes, resident)


def cost_of(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Cost:
    """Run it to its end.

    Raises RuntimeError, with what it said last, when it fails, and TimeoutExpired when it takes
    longer.
    """
    started, watch = time.monotonic(), _Watch()
    with subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **(environment or {})},
    ) as command:
        root = psutil.Process(command.pid)
        try:
            output, said = _watched(command, root, watch, until=started + timeout_seconds)
        except BaseException:
            _end(root)
            raise
    seconds = time.monotonic() - started
    if command.returncode:
        tail = "\n".join((output + said).splitlines()[-_TAIL_LINES:])
        raise RuntimeError(
            f"{' '.join(argv[:6])} ... ended with code {command.returncode}:\n{tail}"
        )
    return Cost(seconds, sum(watch.processor_seconds.values()), watch.peak_bytes, output)


def _watched(
    command: "subprocess.Popen[str]", root: psutil.Process, watch: _Watch, *, until: float
) -> tuple[str, str]:
    while True:
        with suppress(psutil.NoSuchProcess):
            watch.look(root)
        try:
            return command.communicate(timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if time.monotonic() > until:
                raise


def _end(root: psutil.Process) -> None:
    for one in (*root.children(recursive=True), root):
        with suppress(psutil.NoSuchProcess):
            one.kill()


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` was measured in `unit`, with `bound` the most that keeps it; None = no bound."""

    name: str
    value: float
    unit: str
    bound: float | None
    note: str = ""

    @property
    def kept(self) -> bool:
        return self.bound is None or self.value <= self.bound

    def row(self) -> str:
        """A row of the page's table."""
        bound = "" if self.bound is None else f"at most {self.bound:g} {self.unit}"
        verdict = "" if self.bound is None else ("kept" if self.kept else "**missed**")
        return f"| {self.name} | {self.value:.3g} {self.unit} | {bound} | {verdict} | {self.note} |"


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed.

    Raises ValueError without values.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def percentiles(
    what: str,
    values: Sequence[float],
    unit: str,
    bounds: Mapping[int, float | None],
    note: str = "",
) -> list[Figure]:
    """A figure for each percentile, with its bound; `note` is the last one's."""
    figures = [
        Figure(f"{what}, P{percent} of {len(values)}", percentile(values, percent), unit, bound)
        for percent, bound in bounds.items()
    ]
    return [*figures[:-1], replace(figures[-1], note=note)]


def median_of(figures: Sequence[Figure]) -> Figure:
    """The median of several measurements of the same, with the best and the worst beside it.

    At least one is needed.
    """
    values = sorted(figure.value for figure in figures)
    first = figures[0]
    note = f"best {values[0]:.3g} {first.unit}, worst {values[-1]:.3g} {first.unit}"
    return replace(
        first, name=f"{first.name}, median of {len(values)}", value=median(values), note=note
    )


def with_note(figures: Sequence[Figure], note: str) -> list[Figure]:
    """The figures with a note on their measurement, after their own."""
    return [replace(one, note="; ".join(filter(None, [one.note, note]))) for one in figures]


@dataclass(frozen=True, slots=True)
class Record:
    """The figures of one part, and when and on what machine they were taken.

    `load` is the machine's load average (1 min) just before; `stolen_percent` is how much of the
    processors' time its host gave to others meanwhile (None = not noted). `measured_by` is the
    commit whose `bench` measured it, where today's no longer can ("" = it still can).
    """

    part: str
    day: str
    load: float
    figures: list[Figure] = field(default_factory=list)
    stolen_percent: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    measured_by: str = ""

    @classmethod
    def begin(cls, part: str) -> Self:
        """A record without figures yet, of this moment and machine."""
        return cls(
            part,
            datetime.now(UTC).date().isoformat(),
            round(os.getloadavg()[0], 1),
            machine=describe_machine(),
        )


class Records:
    """The newest record of each part, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, record: Record) -> None:
        """Replace the part's record."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path(record.part).write_text(
            json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8"
        )

    def read(self, part: str) -> Record | None:
        """The part's record; None when it was never measured."""
        path = self._path(part)
        if not path.exists():
            return None
        known = json.loads(path.read_text(encoding="utf-8"))
        return Record(**{**known, "figures": [Figure(**figure) for figure in known["figures"]]})

    def _path(self, part: str) -> Path:
        return self._folder / f"{part}.json"


_PEERS = (
    (
        "Strimzi User Operator: 500 users created, modified and deleted",
        "53.9 s",
        "its project's own published figure (strimzi#12091)",
    ),
    (
        "Strimzi User Operator: 200 users, the same",
        "31.5 s",
        "its project's own published figure (strimzi#12091)",
    ),
)


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
Machine = tuple[tuple[str, str], ...]


def page(sections: Mapping[str, Sequence[Record]], soak: str = "") -> str:
    """The page as Markdown: the records of each section, and the machines of all of them.

    A section without records is left out. `soak` is the table of `make soak`.
    """
    letters = dict(
        zip(
            dict.fromkeys(_machine(record) for records in sections.values() for record in records),
            _LETTERS,
            strict=False,
        )
    )
    peers = "\n".join(f"| {what} | {value} | {source} |" for what, value, source in _PEERS)
    measured = "\n".join(
        _section(title, records, letters) for title, records in sections.items() if records
    )
    return f"""# Benchmarks

`make bench` writes this page. Each part also runs alone (`python -m bench cold-5000`;
`python -m bench --help` lists the parts).

The set-up is real: Kafka 3.9.2 brokers with ZooKeeper on loopback, a Kubernetes API server, the
Prometheus that rollups read, and the operator as a separate process. All of them share one machine;
a real cluster has one for each. Figures for Kafka 4.3.1 are without ZooKeeper. Python's garbage
collector is set as in the operator.

| column | meaning |
|---|---|
| `load` | the load average of the minute before the part began |
| `taken` | the share of processor time that the host gave to other virtual machines during the part |
| `on` | the machine |

A note that ends with "bench of" and a commit belongs to a part that was measured once. It can only
be measured again with the `bench/` of that commit (`git worktree add ../bench-then COMMIT`).

{_machines(letters)}

{measured}{f"{chr(10)}## Hours on nine brokers{chr(10)}{chr(10)}{soak}" if soak else ""}
## Others

| what | figure | source |
|---|---|---|
{peers}
"""


def _machine(record: Record) -> Machine:
    return tuple(record.machine.items())


def _machines(letters: Mapping[Machine, str]) -> str:
    """A column for each machine."""
    labels = list(dict.fromkeys(label for machine in letters for label, _ in machine))
    rows = [[label, *(dict(machine).get(label, "") for machine in letters)] for label in labels]
    head = ["machine", *letters.values()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _section(title: str, records: Sequence[Record], letters: Mapping[Machine, str]) -> str:
    rows = "\n".join(
        f"{figure.row()} {record.day} | {_surroundings(record)} | {letters[_machine(record)]} |"
        for record in records
        for figure in with_note(record.figures, _measured_then(record))
    )
    return f"""## {title}

| what | measured | bound | verdict | note | day | load | taken | on |
|---|---|---|---|---|---|---|---|---|
{rows}
"""


def _measured_then(record: Record) -> str:
    return f"bench of {record.measured_by}" if record.measured_by else ""


def _surroundings(record: Record) -> str:
    taken = "" if record.stolen_percent is None else f"{record.stolen_percent:g} %"
    return f"{record.load:g} | {taken}"


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one run.

    `keep` writes down what they were taken from, and is called for the run that counts.
    """

    figures: list[Figure]
    keep: Callable[[], None] = lambda: None


def quiet(
    measure: Callable[[], Measured],
    *,
    times: Callable[[], ProcessorTimes] = ProcessorTimes.now,
    runs: int = 1,
    most_runs: int = 4,
    stolen_percent: float = 12.0,
) -> list[Figure]:
    """The figures of the first run from which the host took little, or the medians of `runs`.

    After `most_runs`, those of the runs from which it took least: such a run measures the host.
    """
    measured: list[tuple[float, Measured]] = []
    while (
        len(measured) < most_runs and sum(stolen <= stolen_percent for stolen, _ in measured) < runs
    ):
        begun = times()
        one = measure()
        measured.append((ProcessorShare.between(begun, times()).stolen_percent, one))
    chosen = sorted(measured, key=lambda one: one[0])[:runs]
    for _, one in chosen:
        one.keep()
    left_out = len(measured) - runs
    note = f"the host took at most {chosen[-1][0]:.0f} % of the processors" + (
        f"; {left_out} runs from which it took more are left out" if left_out > 0 else ""
    )
    figures = zip(*(one.figures for _, one in chosen), strict=True)
    return with_note([each[0] if runs == 1 else median_of(each) for each in figures], note)
