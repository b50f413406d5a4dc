"""The condition RollupsCurrent of a policy: whether every window that is over is in the usage tables, and if not, why.

Its words change when a window is published or a Job ends, not while one runs. It is no part of Ready: tables do not move quotas.
"""

from collections.abc import Mapping
from typing import Any

from controller_logic.reasons import Reason
from controller_logic.rollup_schedule import Due, Window
from tidegate.control.rollups_look import RollupSight
from tidegate.control.verdict import Truth, Verdict, counted, listed, sentence, shortened
from tidegate.kube.rollup_jobs import rfc3339
from tidegate.resources.status import RollupStatus

TYPE = "RollupsCurrent"
UNSEEN_AFTER_SECONDS = 300.0
_NEWEST = 1  # the window that has just ended may be on its way into the tables


def rollups_current(sight: RollupSight | None, *, wanted: bool, previous: Mapping[str, Any], now_seconds: float) -> tuple[Verdict, ...]:
    """One verdict; none where the policy asks for no rollups and never did, or where what was said before stands until the first look."""
    stood = any(condition.get("type") == TYPE for condition in previous.get("conditions") or ())
    if not wanted:
        told = "The policy asks for no usage rollups any more; tables that exist stay as they are"
        return (Verdict(TYPE, Truth.UNKNOWN, Reason.ROLLUPS_NOT_WANTED, told),) if stood else ()
    if sight is None:
        return () if stood else (Verdict(TYPE, Truth.UNKNOWN, Reason.STARTING, "The policy's rollup Jobs have not been looked at yet"),)
    status, reason, told = _judged(sight, now_seconds)
    return (Verdict(TYPE, status, reason, shortened(sentence(told))),)


def rollup_status(sight: RollupSight | None, *, wanted: bool, previous: Mapping[str, Any]) -> RollupStatus | None:
    """The figures for people and machines; what was said before where this pass does not know."""
    if not wanted:
        return None
    if sight is None or sight.due is None:
        return RollupStatus.model_validate(previous["rollup"]) if previous.get("rollup") else None
    due = sight.due
    until = None if due.published_until_ms is None else rfc3339(due.published_until_ms)
    return RollupStatus(published_until=until, waiting=len(due.missing), failed=len(due.failed))


def _judged(sight: RollupSight, now_seconds: float) -> tuple[Truth, Reason, str]:
    if not sight.offered:
        told = "this operator was started without an image for rollup Jobs, so it makes none: set rollup.enabled of the chart"
        return Truth.FALSE, Reason.ROLLUPS_NOT_OFFERED, told
    age_seconds = now_seconds - sight.looked_at_seconds
    if age_seconds > UNSEEN_AFTER_SECONDS:
        told = f"no look at the rollup Jobs has ended for {age_seconds / 60:.0f} minutes; quotas do not depend on it"
        return Truth.UNKNOWN, Reason.ROLLUPS_UNSEEN, told
    if sight.trouble is not None:
        return (Truth.UNKNOWN if sight.due is None else Truth.FALSE), *sight.trouble
    if sight.due is None:
        return Truth.UNKNOWN, Reason.STARTING, "the policy's rollup Jobs have not been looked at yet"
    return _published(sight, sight.due)


def _published(sight: RollupSight, due: Due) -> tuple[Truth, Reason, str]:
    if due.published_until_ms is None:
        until = "no window has begun and ended since the policy was made, so there is nothing to publish yet"
    else:
        until = f"published without a gap until {rfc3339(due.published_until_ms)}"
    if due.failed:
        failures = listed([f"{_span(job.window)}: {job.message or 'no reason given'} (Job {job.name})" for job in due.failed])
        told = f"{counted(len(due.failed), 'window')} failed: {failures}. Each is tried again within two hours, or once it is edited"
        return Truth.FALSE, Reason.ROLLUP_FAILED, f"{told}; {until}"
    if sight.unusable is not None:
        return Truth.FALSE, *sight.unusable
    if len(due.missing) > _NEWEST:
        told = f"{counted(len(due.missing), 'window')} wait for their Job, one at a time, from {_span(due.missing[0])} on"
        return Truth.FALSE, Reason.ROLLUPS_BEHIND, told
    empty_hours = sum(window.end_ms - window.start_ms for window in due.empty) / 3_600_000
    empty = f"; Prometheus has nothing of {empty_hours:.1f} of the latest hours, so they are in no table" if due.empty else ""
    lost = f"; {due.lost_ms / 3_600_000:.1f} hours before that are missing and too old to be filled by themselves" if due.lost_ms else ""
    return Truth.TRUE, Reason.ROLLUPS_PUBLISHED, f"{until}{empty}{lost}"


def _span(window: Window) -> str:
    return f"{rfc3339(window.start_ms)} to {rfc3339(window.end_ms)}"
