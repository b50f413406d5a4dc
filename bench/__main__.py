"""`python -m bench` measures everything and writes docs/benchmarks.md; `python -m bench cold --entities 5000` measures one thing.

Exit code 1 when a bound was missed.
"""

import argparse
import sys
from pathlib import Path

from bench import decide_bench
from bench.cold import cold
from bench.figure import Figure
from bench.machine import describe_machine
from bench.one_change import one_change
from bench.page import page
from bench.rest import rest
from bench.world import world

PAGE = Path("docs/benchmarks.md")


def main() -> int:
    """Measure what was asked for and return the exit code."""
    options = _options()
    machine = describe_machine()
    figures = _measured(options)
    for figure in figures:
        print(figure.row(), flush=True)
    if options.what == "all":
        PAGE.write_text(page(machine, figures), encoding="utf-8")
    return 0 if all(figure.kept for figure in figures) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("what", nargs="?", default="all", choices=["all", "cold", "change", "rest", "decide"])
    parser.add_argument("--entities", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=300, help="how long an operator at rest is watched")
    return parser.parse_args()


def _measured(options: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    if options.what in ("all", "decide"):
        figures += _decide()
    if options.what != "decide":
        with world() as running:
            figures += cold(running, options.entities)
            if options.what in ("all", "change"):
                figures += one_change(running, options.changes)
            if options.what in ("all", "rest"):
                figures += rest(running, options.seconds)
    return figures


def _decide() -> list[Figure]:
    first = decide_bench.observation()
    decision, cold_rounds = decide_bench.timed(first)
    _, steady_rounds = decide_bench.timed(decide_bench.applied(first, decision.writes))
    bound = decide_bench.BOUND_SECONDS * 1000
    size = "decide(), 50 brokers, 20,000 partitions, 5000 entities"
    return [
        Figure(f"{size}: everything new, best of {len(cold_rounds)}", min(cold_rounds) * 1000, "ms", bound),
        Figure(f"{size}: nothing to change, best of {len(steady_rounds)}", min(steady_rounds) * 1000, "ms", bound),
    ]


if __name__ == "__main__":
    sys.exit(main())
