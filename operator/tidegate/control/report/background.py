"""What a pass did about tiered storage and log directories, in status and condition."""

from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.control.replication import ReplicationResult
from tidegate.control.report.conditions import Truth, Verdict, listed, shortened
from tidegate.control.report.replication import problem_of
from tidegate.resources.status import BackgroundStatus
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.background import Flow
from tidegate_logic.replication.throttles import is_lasting
from tidegate_logic.words import rate_words

TYPE = "BackgroundCurrent"
_SHOWN = 64


def background_status(
    result: ReplicationResult, *, wanted: bool, previous: Mapping[str, Any]
) -> BackgroundStatus | None:
    """The status; the one from before where this pass could not look."""
    if not wanted:
        return None
    decision = result.decision
    if decision is None:
        return BackgroundStatus.model_validate(previous.get("background") or {}, strict=False)
    rates = [
        f"broker {broker} {kind.value}: {rate_words(rate)}"
        for (broker, kind), rate in sorted(result.background.items())
    ]
    others = [shortened(str(one)) for one in decision.background.others]
    return BackgroundStatus(
        rates=tuple(rates[:_SHOWN]) or None, others=tuple(others[:_SHOWN]) or None
    )


def background_verdicts(
    result: ReplicationResult, *, wanted: bool, previous: Mapping[str, Any]
) -> tuple[Verdict, ...]:
    """One condition where the policy asks for it or has it still."""
    present = any(one.get("type") == TYPE for one in previous.get("conditions") or ())
    if not wanted and not present:
        return ()
    status, reason, text = _judged(result) if wanted else _leaving(result)
    return (Verdict(TYPE, status, reason, shortened(text)),)


def _leaving(result: ReplicationResult) -> tuple[Truth, Reason, str]:
    record = {} if result.decision is None else result.decision.record
    left = [str(one) for one, keys in sorted(record.items()) if any(map(is_lasting, keys))]
    if result.error is not None:
        return Truth.FALSE, result.error.reason, result.error.message
    if left:
        text = f"The rates from before are being put back on {listed(left)}"
        return Truth.FALSE, Reason.BACKGROUND_INCOMPLETE, text
    text = "The policy sets no rate of background traffic, and none of it is set"
    return Truth.TRUE, Reason.BACKGROUND_IDLE, text


def _judged(result: ReplicationResult) -> tuple[Truth, Reason, str]:
    if result.error is not None:
        return Truth.FALSE, result.error.reason, result.error.message
    if result.decision is None:
        text = "Background traffic was not checked in this pass: see the condition Ready"
        return Truth.UNKNOWN, Reason.STARTING, text
    decision = result.decision.background
    if result.failed:
        return Truth.FALSE, Reason.BACKGROUND_INCOMPLETE, problem_of(result) or ""
    if decision.ineffective:
        text = (
            f"More bytes pass than the rate allows: {_flows(decision.ineffective)}. Kafka counts a "
            "whole segment at once and forgets it after its quota window, so no rate below a "
            "segment in that time holds. Make segment.bytes smaller, or raise "
            "remote.log.manager.copy.quota.window.num or ...fetch.quota.window.num"
        )
        return Truth.FALSE, Reason.BACKGROUND_INEFFECTIVE, text
    if decision.others:
        text = (
            "Somebody changed these after Tidegate, and they stay: "
            f"{listed([str(one) for one in decision.others])}. Delete the setting to let Tidegate "
            "set it again"
        )
        return Truth.FALSE, Reason.BACKGROUND_BY_OTHERS, text
    if decision.left_alone:
        text = f"Left alone, because somebody keeps resetting: {_flows(decision.left_alone)}"
        return Truth.FALSE, Reason.BACKGROUND_BY_OTHERS, text
    if decision.lacking:
        text = (
            f"Kafka has no rate for it before 3.9, so it is not throttled: "
            f"{_flows(decision.lacking)}. Upgrade these brokers, or set mode Off"
        )
        return Truth.FALSE, Reason.BACKGROUND_UNSUPPORTED, text
    if decision.unmeasured:
        text = (
            f"The load or its bytes are not known, so the rates stay: "
            f"{_flows(decision.unmeasured)}. Let Prometheus have RemoteCopyBytesPerSec and "
            "RemoteFetchBytesPerSec of the brokers"
        )
        return Truth.FALSE, Reason.BACKGROUND_UNMEASURED, text
    if decision.in_force:
        return Truth.TRUE, Reason.BACKGROUND_THROTTLED, _flows(decision.in_force)
    text = "No live broker has anything of it; tiered storage is off"
    return Truth.TRUE, Reason.BACKGROUND_IDLE, text


def _flows(flows: Iterable[Flow]) -> str:
    """`RemoteCopy on broker 1 and broker 2`, by kind."""
    by_kind: dict[str, list[str]] = {}
    for broker, kind in sorted(flows):
        by_kind.setdefault(kind.value, []).append(f"broker {broker}")
    return "; ".join(f"{kind} on {listed(brokers)}" for kind, brokers in by_kind.items())
