"""`python -m tools.simulate scenario.toml` plays a scenario through `throttle` and prints every
decision.

For documentation, tests and people who tune constants. `scenario.py` reads the file, `model.py` is
the simulated cluster. Exit code 2 for a file that cannot be read or is not valid.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

from controller_logic.throttle.decision import (
    BrokerView,
    LimitedBy,
    Phase,
    Round,
    StepKind,
    ThrottleStep,
)
from controller_logic.throttle.nic_status import Pressure
from tools.simulate.model import SimulatedCluster
from tools.simulate.scenario import Scenario, ScenarioError, scenario_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the file that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.simulate", description="Play a scenario and print the decisions."
    )
    parser.add_argument("scenario", help="a TOML file; see examples/scenarios/")
    path = parser.parse_args(arguments).scenario
    try:
        with open(path, encoding="utf-8") as file:
            scenario = scenario_of(file.read())
    except (OSError, UnicodeDecodeError, ScenarioError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    try:
        for line in lines_of(scenario):
            print(line, flush=True)
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        sys.stderr.close()  # else the interpreter prints the error once more when it ends
    return 0


def lines_of(scenario: Scenario) -> Iterator[str]:
    """All output lines: a heading, then every round in which something was decided or changed, then
    what is in force at the end.
    """
    cluster = scenario.cluster()
    yield scenario.title
    printed: dict[str, tuple[Phase, tuple[str, ...]]] = {}
    while cluster.now_seconds < scenario.seconds:
        for change in scenario.due(
            cluster.now_seconds, cluster.now_seconds + scenario.interval_seconds
        ):
            yield f"{change.at_seconds:6.0f} s  {change.words}"
            change.play(cluster)
        decision = cluster.run(scenario.interval_seconds)
        for one in decision.rounds:
            news = (one.phase, tuple(finding.reason.value for finding in one.findings))
            if news != printed.get(one.direction, (Phase.NORMAL, ())) or any(
                step.kind is not StepKind.HOLD for step in one.steps
            ):
                yield from _round(one)
            printed[one.direction] = news
    yield from _end(cluster)


def _round(one: Round) -> Iterator[str]:
    brokers = "; ".join(_broker(view) for view in one.brokers if view.nic.limit is not None)
    yield f"{one.at_seconds:6.0f} s  {one.direction.value:<7} {one.phase.value:<10} {brokers}"
    for step in one.steps:
        if step.kind is not StepKind.HOLD:
            yield f"          {_step(step)}"
    for finding in one.findings:
        yield f"          {finding.reason.value}: {finding.message}"


def _broker(view: BrokerView) -> str:
    nic = view.nic
    if nic.bytes_per_second is None or nic.limit is None:
        return f"broker {nic.broker} unknown"
    over = " over" if nic.pressure is Pressure.OVER else ""
    return (
        f"broker {nic.broker} {_mb(nic.bytes_per_second)} of {_mb(nic.limit)} MB/s{over} "
        f"({nic.hot_samples}/{nic.samples})"
    )


def _step(step: ThrottleStep) -> str:
    before = "none" if step.in_force is None else _mb(step.in_force)
    words = (
        f"{step.kind.value:<8} {step.level.value} {step.entity}: {before} -> {_mb(step.value)} MB/s"
    )
    if step.kind is not StepKind.CUT:
        return (
            words
            if step.limited_by is LimitedBy.NOTHING
            else f"{words}, limited by {step.limited_by.value}"
        )
    effect = f"takes {_mb(step.relief)} where it is needed, {_mb(step.collateral)} elsewhere"
    ends = f"ends at {_mb(step.target)}, limited by {step.limited_by.value}"
    return f"{words}, {ends}; mute at most {step.predicted_mute_seconds:.0f} s; {effect}"


def _end(cluster: SimulatedCluster) -> Iterator[str]:
    yield f"{cluster.now_seconds:6.0f} s  in force at the end:"
    for actor in cluster.actors:
        in_force = cluster.in_force.get(actor.key, actor.promised)
        state = "contract" if in_force == actor.promised else f"of {_mb(actor.promised)}"
        yield (
            f"          {actor.level.value} {actor.entity} {actor.direction.value}: "
            f"{_mb(in_force)} MB/s ({state})"
        )


def _mb(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.2f}"


if __name__ == "__main__":
    sys.exit(main())
