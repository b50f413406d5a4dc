"""What a throttle decision does that it did not do already, so that who counts or tells of decisions does so once for each.

A cut that waits for its moment, for the write budget, or for somebody to leave mode Observe is decided again and again; it is one act.
"""

from collections.abc import Mapping

from controller_logic.throttle.decision import StepKind, ThrottleDecision, ThrottleStep
from controller_logic.throttle.input import RateKey

ACTIONS = frozenset({StepKind.CUT, StepKind.RAISE, StepKind.RELEASE})

Act = tuple[StepKind, int, int | None]  # what is done, to which value, from what is in force
Acts = Mapping[RateKey, Act]


def new_acts(throttle: ThrottleDecision, known: Acts) -> tuple[tuple[ThrottleStep, ...], Acts]:
    """The steps that do something new, and what is known from now on: the last act on each rate that is not back at its contract."""
    steps = tuple(step for step in throttle.steps.values() if step.kind in ACTIONS and known.get(step.key) != _act(step))
    after = {**known, **{step.key: _act(step) for step in steps}}
    return steps, {key: act for key, act in after.items() if key in throttle.steps}


def _act(step: ThrottleStep) -> Act:
    return (step.kind, step.value, step.in_force)
