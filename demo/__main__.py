"""`python -m demo`: sets everything up, plays the experiment, writes the report, takes everything away again.

Environment: DEMO=quick for the short one. Exit codes: 0 every bound kept,
1 a bound missed or a part failed, 130 interrupted. Outputs: out/demo/report.html, summary.json, operator.log.
"""

import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from bench.machine import describe_machine
from demo.board import Board
from demo.declared import NAMESPACE
from demo.estate import Estate, SetupLog, describe, estate
from demo.kubernetes_events import KubernetesEvents
from demo.live_view import live_view
from demo.load import TRIAL_BYTES_PER_SECOND, carried_without_quota
from demo.outcome import Outcome
from demo.plain_view import PlainView
from demo.play import Play
from demo.report import report_html
from demo.result_table import print_results
from demo.scale import FULL, QUICK, Scale, Windows, scale_for
from demo.script import HEALTHY_LEADERS, TOPIC, USER, played_phases
from demo.summary import summary
from demo.zookeeper_witness import ZooKeeperWitness
from lab.errors import LabError

OUTPUT = Path("out/demo")
_INTERRUPTED = 130


def main() -> int:
    """Run the demo and return its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    started = time.monotonic()
    try:
        outcome = run(console, QUICK if os.environ.get("DEMO") == "quick" else FULL)
    except KeyboardInterrupt:
        console.print("Interrupted: everything that was started has been stopped and removed.")
        return _INTERRUPTED
    except LabError as error:
        console.print(f"The demo failed; everything that was started has been stopped and removed.\n{error}", style="red", markup=False)
        return 1
    write_outputs(outcome)
    print_results(console, outcome)
    console.print(f"Report: {OUTPUT / 'report.html'} (open it in a browser). Took {time.monotonic() - started:.0f} s.")
    return 0 if outcome.passed else 1


def run(console: Console, windows: Windows) -> Outcome:
    """Set up, play, take away; the outcome is complete when this returns."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    machine = describe_machine()
    log = SetupLog(lambda line: console.print(line, highlight=False))
    console.print("Setting up a whole estate on this machine:")
    with estate(log, OUTPUT / "operator.log") as parts:
        tried = TRIAL_BYTES_PER_SECOND * len(HEALTHY_LEADERS)
        carried = log.timed("trial of the machine, without any quota", lambda: carried_without_quota(parts.kafka))
        scale = scale_for(carried, tried_bytes_per_second=tried, cores=os.cpu_count() or 1)
        console.print(f"  {scale.reason}.", highlight=False)
        return play(console, parts, scale=scale, windows=windows, surroundings={**machine, **describe(parts)}, setup=log.seconds)


def play(
    console: Console, parts: Estate, *, scale: Scale, windows: Windows, surroundings: dict[str, str], setup: dict[str, float]
) -> Outcome:
    """Play every phase under a live view (plain lines when the output is no terminal)."""
    plain = PlainView(console.file)
    lines = not console.is_terminal
    board = Board(on_mark=plain.on_mark if lines else _ignore, on_rates=plain.on_rates if lines else _ignore)
    with ExitStack() as stack:
        connect = parts.kafka.zookeeper_connect
        witness = stack.enter_context(ZooKeeperWitness(connect, board, user=USER, topic=TOPIC, partitions=len(HEALTHY_LEADERS)))
        stack.enter_context(KubernetesEvents(parts.kube.kubeconfig, board, namespace=NAMESPACE))
        if not lines:
            stack.enter_context(live_view(console, board.snapshot, contract=scale.contract_bytes_per_second))
        running = stack.enter_context(Play(parts, board, witness, scale=scale, windows=windows))
        phases = played_phases(with_second_before=windows.measures_before_second_kill)
        results = tuple(running.run_phase(phase) for phase in phases)
        return Outcome(scale, windows, results, running.reaction(), running.series(), board.marks(), surroundings, setup)


def write_outputs(outcome: Outcome) -> None:
    """Write the report and the summary."""
    (OUTPUT / "report.html").write_text(report_html(outcome), encoding="utf-8")
    (OUTPUT / "summary.json").write_text(json.dumps(summary(outcome), indent=2) + "\n", encoding="utf-8")


def _ignore(_: object) -> None:
    """A live view reads the board by itself."""


if __name__ == "__main__":
    sys.exit(main())
