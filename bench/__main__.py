"""`python -m bench` measures every part and writes docs/benchmarks.md.

`python -m bench cold-1000` measures one part again. The page is made of the newest figures of each
part (bench/measured, which is committed), so a part that was measured alone replaces its rows only.
Exit code 1 when a bound was missed, 2 for a part that does not exist.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from bench.budgets import budget_figures
from bench.command_line import doctor_figures, kraft_doctor_figures, start_figures
from bench.console import console_figures
from bench.control.core import decide_figures, measured_figures, metadata_figures
from bench.control.kraft import kraft_change, kraft_cold, kraft_reaction
from bench.control.latency import (
    changes_after_cold,
    changes_at_rest,
    changes_in_a_row,
    cold,
    reaction,
    rest,
)
from bench.control.ownership import deletion
from bench.control.readings import reading_figures
from bench.control.scenarios import calendar_figures, scenario_figures
from bench.control.world import world
from bench.follower_reads import follower_read_figures
from bench.limiter import limiter_figures
from bench.queues import queue_figures
from bench.replication.decide import replication_decide_figures
from bench.replication.follow import FULL_BYTES, FULL_NIC, follow_figures
from bench.replication.recovery import FULL_BEHIND, recovery_figures
from bench.results import Figure, Measured, Record, Records, page, quiet, with_note
from bench.rollup.kills import kill_figures
from bench.rollup.size import size_figures
from bench.rollup.speed import (
    cold_figures,
    fold_figures,
    growth_figures,
    ingest_figures,
)
from bench.throttling.direct import direct_figures
from bench.throttling.reaction import far_over_rarely_read, slightly_over
from bench.throttling.strides import strides
from lab.load import ProcessorShare, ProcessorTimes
from tidegate.main import tune_collector

# None: measured once. Its figures stay on the page, with the commit whose bench measured them.
Part = Callable[[], list[Figure]] | None


ROLLUPS: Mapping[str, Part] = {
    "rollup-transport": None,
    "rollup-fold": fold_figures,
    "rollup-ingest": ingest_figures,
    "rollup-cold": cold_figures,
    "rollup-growth": growth_figures,
    "rollup-executors": None,
    "rollup-raw": None,
    "rollup-size": size_figures,
    "rollup-kills": kill_figures,
}


PAGE = Path("docs/benchmarks.md")
RECORDS = Path("bench/measured")
SOAK = RECORDS / "soak.md"  # out/soak/table.md of a long run
_STOLEN_PERCENT = 5.0


def main() -> int:
    """Measure what was asked for and return the exit code."""
    tune_collector()
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"any of {', '.join(PARTS)}; all of them when none is named",
    )
    parser.add_argument(
        "--note", default="", help="what the page says beside each figure, such as what else ran"
    )
    arguments = parser.parse_args()
    names = arguments.parts or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(
            f"there is no part {', '.join(unknown)}, so nothing was measured; parts are "
            f"{', '.join(PARTS)}"
        )
    records = Records(RECORDS)
    kept = [_measure(name, records, arguments.note) for name in names]
    _write_page(records)
    return 0 if all(kept) else 1


def _write_page(records: Records) -> None:
    known = {
        title: [record for name in parts if (record := records.read(name)) is not None]
        for title, parts in SECTIONS.items()
    }
    soak = SOAK.read_text(encoding="utf-8") if SOAK.exists() else ""
    PAGE.write_text(page(known, soak), encoding="utf-8")


def _measure(name: str, records: Records, note: str) -> bool:
    begun, record = ProcessorTimes.now(), Record.begin(name)
    figures = with_note(PARTS[name](), note)
    stolen = ProcessorShare.between(begun, ProcessorTimes.now()).stolen_percent
    record = replace(record, figures=figures, stolen_percent=round(stolen, 1))
    records.write(record)
    for figure in record.figures:
        print(figure.row(), flush=True)
    return all(figure.kept for figure in record.figures)


def _cold(entities: int, brokers: int) -> list[Figure]:
    """The median of three runs from which the machine's host took little.

    One from which it took a good part of the processors says nothing, and is made again.
    """

    def measure() -> Measured:
        with world(brokers) as running:
            return Measured(cold(running, entities))

    return quiet(measure, runs=3, most_runs=8, stolen_percent=_STOLEN_PERCENT)


def _changes() -> list[Figure]:
    with world() as running:
        cold(running, 1000)
        # together within the write budget: 240 raises in a quarter of an hour
        return [
            *changes_after_cold(running, 20),
            *changes_at_rest(running, 200),
            *changes_in_a_row(running, 20),
        ]


def _rest() -> list[Figure]:
    with world() as running:
        cold(running, 1000)
        return rest(running, 300)


def _deletion(entities: int) -> list[Figure]:
    with world(1) as running:
        return deletion(running, entities)


def _reaction() -> list[Figure]:
    with world() as running:
        return reaction(running, 10)


SECTIONS: Mapping[str, Mapping[str, Part]] = {
    "From a resource to a quota": {
        "decide": decide_figures,
        "decide-measured": measured_figures,
        "metadata": metadata_figures,
        "reaction": _reaction,
        "cold-1000": lambda: _cold(1000, brokers=1),
        "cold-5000": lambda: _cold(5000, brokers=1),
        "cold-1000-three-brokers": lambda: _cold(1000, brokers=3),
        "change": _changes,
        "rest": _rest,
        "rest-of-two": None,
        "readings": reading_figures,
        "peers": None,
        "kraft-cold-1000": lambda: kraft_cold(1000),
        "kraft-cold-5000": lambda: kraft_cold(5000),
        "kraft-peers": None,
        "kraft-change": kraft_change,
        "kraft-reaction": kraft_reaction,
        "kraft-reaction-short-backoff": lambda: kraft_reaction(fetch_backoff_milliseconds=100),
        "kraft-reaction-other-broker": lambda: kraft_reaction(of_the_ledger=False),
    },
    "Ownership and the way out": {
        "deletion-1000": lambda: _deletion(1000),
        "deletion-5000": lambda: _deletion(5000),
        "two-owners": None,
        "many-policies": None,
    },
    "Reads from followers": {"follower-reads": follower_read_figures},
    "Budgets": {"budgets": budget_figures},
    "Throttling": {
        "throttle-reaction-1s": slightly_over,
        "throttle-reaction-15s": far_over_rarely_read,
        "direct-readings": direct_figures,
        "quota-window-2": None,
        "quota-window-3": None,
        "quota-window-4": None,
        "quota-window-5": None,
        "quota-window-11": None,
        "throttle-short-bursts": None,
        "throttle-thirty": None,
        "throttle-backlog": None,
        "throttle-strides": strides,
        "throttle-scenarios": scenario_figures,
        "throttle-calendar": calendar_figures,
        "episode-consume-1-ladder": None,
        "episode-consume-1-drain": None,
        "episode-consume-6-ladder": None,
        "episode-consume-6-drain": None,
        "episode-produce-1-ladder": None,
        "episode-produce-1-drain": None,
        "episode-produce-6-ladder": None,
        "episode-produce-6-drain": None,
    },
    "Replication": {
        "replication-decide": replication_decide_figures,
        "replication-follow": lambda: follow_figures(FULL_NIC, FULL_BYTES),
        "replication-follow-quarter": lambda: follow_figures(FULL_NIC // 4, FULL_BYTES // 10),
        "replication-recovery": lambda: recovery_figures(FULL_NIC, FULL_BEHIND),
        "replication-recovery-quarter": lambda: recovery_figures(FULL_NIC // 4, FULL_BEHIND // 4),
        "replication-producing": None,
        "replication-producing-kraft": None,
        "replication-seed": None,
    },
    "On the command line": {
        "command-start": start_figures,
        "doctor": doctor_figures,
        "doctor-kraft": kraft_doctor_figures,
    },
    "The console": {"console": console_figures},
    "The limiter": {"limiter": limiter_figures},
    "Delay queues": {"delay-queues": queue_figures},
    "In a cluster": {"in-cluster": None},
    "Usage rollups": ROLLUPS,
}
PARTS: Mapping[str, Callable[[], list[Figure]]] = {
    name: part for parts in SECTIONS.values() for name, part in parts.items() if part is not None
}


if __name__ == "__main__":
    sys.exit(main())
