"""`python -m demo`: plays the experiments and writes their reports.

It sets everything up, plays a broker's death (experiment 1) and a broker over its limit (2 and 3),
rolls the usage of these up (4), moves partitions beside a client (5, which needs root), and takes
everything away again. Beside 2 and 3, messages that may wait are held back and sent later (6).
Environment: DEMO=quick for the short one; KAFKA=4.4-kraft or 3.9-kraft for a Kafka without
ZooKeeper. Exit codes: 0 every bound kept, 1 a bound missed or a part failed, 2 an unknown DEMO or
KAFKA, 130 interrupted. Outputs: out/demo/report.html, summary.json (also kept for each Kafka),
operator.log, audit.jsonl (see `tidegate audit`), usage-tables/ (see `tidegate rollup show`) and
usage/report.html.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from demo import script
from demo.board import Board
from demo.failover import TRIAL_BYTES_PER_SECOND, Play, carried_without_quota
from demo.move_run import run_move
from demo.outcome import Outcome
from demo.parts import (
    AUDIT_TRAIL,
    DEFAULT_KAFKA,
    KAFKAS,
    OPERATOR_LOG,
    KafkaKind,
    Parts,
    SetupLog,
    describe,
    running_parts,
)
from demo.report import report_html
from demo.results_table import print_results
from demo.summary import earlier_runs, keep_run, summary
from demo.throttling import run_throttling
from demo.usage_outcome import REPORT, TABLES
from demo.usage_run import run_usage
from demo.witnesses import noted_events, quota_of_user, watched_leaders
from demo.words import Interruption
from lab.errors import LabError
from lab.machine import describe_machine

OUTPUT = Path("out/demo")
_UNKNOWN_WISH = 2
_INTERRUPTED = 130
_PIPED_WIDTH = 120

Chosen = TypeVar("Chosen")


def main() -> int:
    """Run the demo and return its exit code."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print((__doc__ or "").strip())
        return 0
    console = _console()
    length = _chosen(console, "DEMO", script.LENGTHS, default="full", what="demo")
    kind = _chosen(console, "KAFKA", KAFKAS, default=DEFAULT_KAFKA, what="Kafka")
    if length is None or kind is None:
        return _UNKNOWN_WISH
    started = time.monotonic()
    try:
        outcome = run(
            console,
            length,
            kind=kind,
            interruption=Interruption(console.print),
        )
    except KeyboardInterrupt:
        _clear_usage()
        console.print(
            "Everything that was started has been stopped and removed. No report was written."
        )
        return _INTERRUPTED
    except LabError as error:
        _clear_usage()
        console.print(
            "The demo failed; what it had started has been stopped and removed. No report was "
            "written."
        )
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    write_outputs(outcome, next(name for name, one in KAFKAS.items() if one == kind))
    print_results(console, outcome)
    if outcome.usage is not None and outcome.usage.failed is None:
        shown = f"`tidegate rollup show usage_5m --store {OUTPUT / TABLES}` shows the tables"
        console.print(f"Usage report: {OUTPUT / REPORT / 'report.html'}; {shown}.", highlight=False)
    console.print(
        f"Report: {OUTPUT / 'report.html'} (open it in a browser). Took "
        f"{time.monotonic() - started:.0f} s.",
        highlight=False,
    )
    return 0 if outcome.passed else 1


def _chosen(
    console: Console, variable: str, known: Mapping[str, Chosen], *, default: str, what: str
) -> Chosen | None:
    """What this variable of the environment names. An unknown name is refused on the console, and
    None.
    """
    name = os.environ.get(variable) or default
    if name not in known:
        choices = " or ".join(f"{variable}={one}" for one in known)
        console.print(
            f"There is no {what} named {name!r} here, so nothing was started. Use {choices}; "
            f"without {variable} it is {default}.",
            style="red",
        )
    return known.get(name)


def run(
    console: Console, length: script.Length, *, kind: KafkaKind, interruption: Interruption
) -> Outcome:
    """Set up, play, take away; the outcome is complete when this returns."""
    _clear_outputs()
    began = time.time()
    machine = describe_machine()
    log = SetupLog(lambda line: console.print(line, highlight=False))
    console.print(
        "Setting up Kafka, Prometheus, the Kubernetes API and the operator on this machine, side "
        "by side:"
    )
    with running_parts(log, OUTPUT, kind=kind, interruption=interruption) as parts:
        scale = _tried_scale(parts, log) if length.tries_machine else script.QUICK_SCALE
        console.print(f"Contract per partition: {scale.reason}.\n", highlight=False)
        first = _failover(
            console, parts, scale=scale, windows=length.windows, interruption=interruption
        )
        throttling, shift, marks = run_throttling(
            console, parts, length.throttling, interruption=interruption
        )
        usage = run_usage(
            console,
            parts,
            throttling,
            began_seconds=began,
            output=OUTPUT,
            interruption=interruption,
        )
        # After the rollup: nothing of it is in the tables, which are held to the byte.
        move, later_marks = run_move(console, parts, length.move, interruption=interruption)
        return replace(
            first,
            throttling=throttling,
            shift=shift,
            usage=usage,
            move=move,
            marks=(*first.marks, *marks, *later_marks),
            surroundings={**machine, **describe(parts)},
            setup_seconds=dict(log.seconds),
        )


def _failover(
    console: Console,
    parts: Parts,
    *,
    scale: script.Scale,
    windows: script.Windows,
    interruption: Interruption,
) -> Outcome:
    """Experiment 1; the outcome still lacks the others and `surroundings`."""
    board = Board(console.file)
    partitions = len(script.HEALTHY_LEADERS)
    with (
        quota_of_user(parts.kafka, board, script.USER) as quota,
        watched_leaders(parts.kafka, board, topic=script.TOPIC, partitions=partitions) as leaders,
        noted_events(parts.kube.kubeconfig, board),
        Play(parts, board, quota, leaders, scale=scale, windows=windows) as playing,
        interruption.reported(),
    ):
        phases = script.played_phases(with_second_before=windows.measures_before_second_kill)
        results = tuple(playing.run_phase(phase) for phase in phases)
        return Outcome(
            scale,
            windows,
            results,
            playing.reaction(),
            playing.series(),
            board.marks(),
            surroundings={},
            setup_seconds={},
        )


def write_outputs(outcome: Outcome, kafka: str) -> None:
    """Write the report and the summary, and keep the figures for reports on other Kafkas."""
    report = report_html(outcome, earlier_runs(OUTPUT, kafka))
    (OUTPUT / "report.html").write_text(report, encoding="utf-8")
    (OUTPUT / "summary.json").write_text(
        json.dumps(summary(outcome), indent=2) + "\n", encoding="utf-8"
    )
    keep_run(OUTPUT, kafka, outcome)


def _console() -> Console:
    """The terminal as wide as it is; a file or a pipe wide enough that no table is folded."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)


def _clear_outputs() -> None:
    """What an earlier run left must not be taken for the result of one that failed."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for name in ("report.html", "summary.json", OPERATOR_LOG, AUDIT_TRAIL):
        (OUTPUT / name).unlink(missing_ok=True)
    _clear_usage()


def _clear_usage() -> None:
    """Tables and their report count only beside the report of the same run."""
    for name in (TABLES, REPORT):
        shutil.rmtree(OUTPUT / name, ignore_errors=True)


def _tried_scale(parts: Parts, log: SetupLog) -> script.Scale:
    carried = log.timed(
        "trial of the machine, without quota",
        lambda: carried_without_quota(parts.kafka, script.NEEDED_BYTES_PER_SECOND),
    )
    return script.scale_for(
        carried,
        tried_bytes_per_second=TRIAL_BYTES_PER_SECOND * len(script.HEALTHY_LEADERS),
        cores=os.cpu_count() or 1,
    )


if __name__ == "__main__":
    sys.exit(main())
