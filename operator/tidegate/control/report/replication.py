"""What a pass did about replication, in status and condition; every number is decided."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.control.replication import Figures, ReplicationResult
from tidegate.control.report.conditions import Truth, Verdict, listed, shortened
from tidegate.resources.status import MovingStatus, ReplicationStatus
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.moves import MoveKind
from tidegate_logic.replication.rates import Stall
from tidegate_logic.words import counted, rate_words, size_words

TYPE = "ReplicationCurrent"
_STALLS_SHOWN, _SHOWN = 16, 64
FILLING_WORDS = {MoveKind.REASSIGNMENT: "reassigned", MoveKind.RECOVERY: "catching up"}


def replication_status(
    result: ReplicationResult, *, wanted: bool, previous: Mapping[str, Any]
) -> ReplicationStatus | None:
    """The status; the figures from before where this pass could not look."""
    if not wanted and (_is_idle(result) or not previous.get("replication")):
        return None
    decision = result.decision
    problem = problem_of(result)
    if decision is None:
        # as JSON has it: a tuple is a list there
        known = ReplicationStatus.model_validate(previous.get("replication") or {}, strict=False)
        return known.model_copy(update={"problem": problem})
    return ReplicationStatus(
        moving=_moving(result.figures.get(MoveKind.REASSIGNMENT)),
        recovering=_moving(result.figures.get(MoveKind.RECOVERY)),
        stalls=_texts([stall_words(one) for one in result.stalls], _STALLS_SHOWN),
        leftovers=_texts([str(one) for one in decision.leftovers], _SHOWN),
        others=_texts([str(one) for one in decision.others], _SHOWN),
        waiting_for=_texts([str(one) for one in decision.unknown], _SHOWN),
        problem=problem,
    )


def _is_idle(result: ReplicationResult) -> bool:
    """Whether no throttle of replication is left; a pass may have looked at background traffic."""
    decision = result.decision
    return result.is_idle or (decision is not None and not decision.throttles_replication)


def _moving(figures: Figures | None) -> MovingStatus | None:
    if figures is None:
        return None
    return MovingStatus(
        partitions=figures.partitions,
        bytes_left=figures.bytes_left,
        eta_seconds=None if figures.seconds is None else round(figures.seconds),
        bottleneck=None if figures.bottleneck is None else str(figures.bottleneck),
    )


def _texts(texts: Sequence[str], most: int) -> tuple[str, ...] | None:
    return tuple(shortened(text) for text in texts[:most]) or None


def problem_of(result: ReplicationResult) -> str | None:
    """What went wrong in this pass, in words; None = nothing."""
    if result.error is not None:
        return shortened(result.error.message)
    if result.failed:
        return shortened(
            "not changed, and tried again: "
            + listed([f"{one}: {why}" for one, why in sorted(result.failed.items())])
        )
    decision = result.decision
    if decision is not None and decision.left_alone:
        where = listed([str(one) for one in decision.left_alone])
        return shortened(f"left alone, because another tool keeps removing throttles: {where}")
    return None


def stall_words(stall: Stall) -> str:
    """What the rate is and what it would have to be, or what arrived where that does not say it."""
    rate = f"{stall.side}: the rate is {rate_words(stall.rate)}"
    if stall.arrives is not None:
        return (
            f"{rate}, but {rate_words(stall.arrives)} arrived in the last minute while the moving "
            f"partitions received {rate_words(stall.inflow)}; other partitions on the lists, which "
            "Kafka counts too, or a slow disk take the rest"
        )
    need = f"{rate}, and more than {rate_words(stall.inflow + stall.in_sync)} is needed: "
    need += f"the replicas being filled receive {rate_words(stall.inflow)} of new data"
    if stall.in_sync:
        need += f", and Kafka counts {rate_words(stall.in_sync)} for replicas in sync"
    return need


def replication_verdicts(
    result: ReplicationResult, *, wanted: bool, previous: Mapping[str, Any]
) -> tuple[Verdict, ...]:
    """One condition where the policy asks for replication or has it still."""
    present = any(one.get("type") == TYPE for one in previous.get("conditions") or ())
    if not wanted and (_is_idle(result) or not present):
        text = "The policy throttles no replication, and no throttle of it is set"
        return (Verdict(TYPE, Truth.TRUE, Reason.REPLICATION_IDLE, text),) if present else ()
    status, reason, text = _judged(result)
    return (Verdict(TYPE, status, reason, shortened(text)),)


def _judged(result: ReplicationResult) -> tuple[Truth, Reason, str]:
    decision, problem = result.decision, problem_of(result)
    if result.error is not None:
        return Truth.FALSE, result.error.reason, problem or ""
    if decision is None:
        text = "Replication was not checked in this pass: see the condition Ready"
        return Truth.UNKNOWN, Reason.STARTING, text
    if result.stalls:
        stalls = listed([stall_words(one) for one in result.stalls])
        text = (
            f"At this rate it never ends: {stalls}. Raise "
            "rate.min or rate.max of spec.replication, or move partitions when less is produced"
        )
        return Truth.FALSE, Reason.REASSIGNMENT_STALLS, text
    if problem is not None:
        return Truth.FALSE, Reason.REPLICATION_INCOMPLETE, problem
    if decision.others:
        text = (
            "Another tool set these, and they stay: "
            f"{listed([str(one) for one in decision.others])}"
        )
        return Truth.FALSE, Reason.REPLICATION_BY_OTHERS, text
    if decision.leftovers:
        text = (
            "Left behind while nothing is reassigned; they slow the next recovery: "
            f"{listed([str(one) for one in decision.leftovers])}"
        )
        return Truth.FALSE, Reason.REPLICATION_LEFTOVER, text
    moving = [
        f"{counted(one.partitions, 'partition')} {FILLING_WORDS[kind]}"
        for kind, one in result.figures.items()
    ]
    if moving:
        return Truth.TRUE, Reason.REPLICATION_THROTTLED, listed(moving)
    text = "No replica is being filled"
    if decision.unknown:
        text += f"; {listed([str(one) for one in decision.unknown])} still to be cleared"
    return Truth.TRUE, Reason.REPLICATION_IDLE, text


def begin_words(kind: MoveKind, figures: Figures) -> str:
    """What begins: how much, and how long it will take."""
    text = f"{counted(figures.partitions, 'partition')} {FILLING_WORDS[kind]}"
    if figures.bytes_left is not None:
        text += f", {size_words(figures.bytes_left)} left"
    if figures.seconds is not None:
        text += f", about {figures.seconds:.0f} s by {figures.bottleneck}"
    return text
