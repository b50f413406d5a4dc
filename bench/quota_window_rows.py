"""What each second of a run moved, and the CSV file of it: a row a second, a column a client and a direction of the NIC."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench.quota_window_clients import CLIENTS, Client

_KEYS = ("window", "second", "phase")
_CARD = ("egress", "ingress")


class Phase(StrEnum):
    """What is done to the quotas in a part of a run."""

    SETTLE = "settle"
    STEADY = "steady"
    HALF = "half"
    RETURN = "return"
    FIFTH = "fifth"


QUOTA_SHARE = {Phase.SETTLE: 1.0, Phase.STEADY: 1.0, Phase.HALF: 0.5, Phase.RETURN: 1.0, Phase.FIFTH: 0.2}


@dataclass(frozen=True, slots=True)
class Second:
    """One second of the run with `window` samples; `second` counts from its start. All amounts in bytes."""

    window: int
    second: int
    phase: Phase
    moved: dict[str, int]
    egress: int
    ingress: int

    def of(self, client: Client) -> int:
        """What this client moved."""
        return self.moved[client.name]


def write_rows(path: Path, rows: Iterable[Second]) -> None:
    """Replace the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([*_KEYS, *(client.name for client in CLIENTS), *_CARD])
        for row in rows:
            amounts = [row.of(client) for client in CLIENTS]
            out.writerow([row.window, row.second, row.phase, *amounts, row.egress, row.ingress])


def read_rows(path: Path) -> list[Second]:
    """What `write_rows` wrote; FileNotFoundError where it never did."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_second(fields) for fields in csv.DictReader(file)]


def _second(fields: dict[str, str]) -> Second:
    moved = {client.name: int(fields[client.name]) for client in CLIENTS}
    egress, ingress = (int(fields[direction]) for direction in _CARD)
    return Second(int(fields["window"]), int(fields["second"]), Phase(fields["phase"]), moved, egress, ingress)


def of_phase(rows: Sequence[Second], phase: Phase) -> list[Second]:
    """The rows of one phase, in their order."""
    return [row for row in rows if row.phase is phase]
