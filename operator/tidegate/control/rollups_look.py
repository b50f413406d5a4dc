"""One look at a policy's usage rollups: what its Jobs wrote down, which Jobs there are, and the next Job made where one is due.

It waits for nothing and keeps nothing but the last result that could be read, which counts until its own end. Two replicas that look at
once make the same Job, and one of them is told that it exists; that is no failure.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from controller_logic.model import Usage
from controller_logic.reasons import Reason
from controller_logic.rollup_schedule import Due, Wanted, WindowJob, due
from tidegate.control.rollups_job import pod_of, window_job
from tidegate.errors import Conflict, TidegateError
from tidegate.kube.api import JsonObject, Kubernetes
from tidegate.kube.rollup_jobs import RollupResult, is_owned, job_body, read_result, result_name, selector
from tidegate.resources.fields import parse_moment
from tidegate.resources.rollup import Rollup
from tidegate.settings import RollupOffer

log = structlog.get_logger(__name__)

Problem = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class RollupSight:
    """What a look found. `offered` False = this operator makes no Jobs; then nothing else is known.

    `usage` are figures that still count, None = there are none. `trouble` is what kept the look from its end, `unusable` what is wrong
    with the result.
    """

    looked_at_seconds: float
    offered: bool = True
    due: Due | None = None
    usage: Usage | None = None
    trouble: Problem | None = None
    unusable: Problem | None = None


class RollupLook:
    """Looks at one policy. `may_write` is its Lease, `count` is told how each Job that was asked for fared; `wall` is seconds."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        offer: RollupOffer,
        *,
        may_write: Callable[[], bool],
        wall: Callable[[], float],
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kubernetes = kubernetes
        self._offer = offer
        self._may_write = may_write
        self._wall = wall
        self._count = count
        self._result: RollupResult | None = None

    def look(self, policy: JsonObject, spec: Rollup) -> RollupSight:
        """Raises nothing for a Kubernetes that is away or refuses: that is `trouble`."""
        now_seconds = self._wall()
        found, unusable = None, None
        try:
            unusable = self._read_result(policy)
            found = self._due(policy, spec, now_seconds)
            self._act(policy, spec, found)
        except TidegateError as error:
            trouble = error.reason, error.message
            return RollupSight(now_seconds, due=found, usage=self._usage(now_seconds), trouble=trouble, unusable=unusable)
        return RollupSight(now_seconds, due=found, usage=self._usage(now_seconds), unusable=unusable or self._stale(now_seconds))

    def _read_result(self, policy: JsonObject) -> Problem | None:
        """Take the newest result; what is none of this policy's is as good as none."""
        namespace, name = policy["metadata"]["namespace"], result_name(policy["metadata"]["name"])
        result, problem = read_result(self._kubernetes, policy)
        self._result = result
        return None if problem is None else (Reason.ROLLUP_RESULT_UNUSABLE, f"ConfigMap {namespace}/{name} is not used: {problem}")

    def _due(self, policy: JsonObject, spec: Rollup, now_seconds: float) -> Due:
        metadata = policy["metadata"]
        jobs = self._kubernetes.list_jobs(metadata["namespace"], selector=selector(metadata["name"]))
        ours = [job for raw in jobs if is_owned(raw, metadata["uid"]) and (job := window_job(raw)) is not None]
        uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in jobs}
        wanted = Wanted(
            every_ms=spec.every_seconds_or_default * 1000,
            since_ms=round(parse_moment(metadata["creationTimestamp"]) * 1000),
            generation=int(metadata.get("generation", 0)),
        )
        published, empty = ((), ()) if self._result is None else (self._result.published, self._result.empty)
        found = due(wanted, published, ours, now_ms=round(now_seconds * 1000), empty=empty)
        for job in found.obsolete:
            self._delete(policy, job, uids[job.name])
        return found

    def _delete(self, policy: JsonObject, job: WindowJob, uid: str) -> None:
        """A Job that failed for a spec that was edited since: its window is tried again without waiting for its end."""
        if self._may_write():
            self._kubernetes.delete_job(policy["metadata"]["namespace"], job.name, uid=uid)

    def _act(self, policy: JsonObject, spec: Rollup, found: Due) -> None:
        if found.start is None or policy["metadata"].get("deletionTimestamp") or not self._may_write():
            return
        body = job_body(policy, pod_of(spec, self._offer), start_ms=found.start.start_ms, end_ms=found.start.end_ms)
        try:
            self._kubernetes.create_job(policy["metadata"]["namespace"], body)
        except Conflict:
            return
        except TidegateError:
            self._count("refused")
            raise
        self._count("made")
        log.info("Rollup Job made", policy=f"{policy['metadata']['namespace']}/{policy['metadata']['name']}", job=body["metadata"]["name"])

    def _usage(self, now_seconds: float) -> Usage | None:
        return None if self._result is None or now_seconds * 1000 > self._result.valid_until_ms else self._result.usage

    def _stale(self, now_seconds: float) -> Problem | None:
        if self._result is None or self._result.usage is None or now_seconds * 1000 <= self._result.valid_until_ms:
            return None
        hours = (now_seconds - self._result.computed_at_ms / 1000) / 3600
        return Reason.ROLLUP_RESULT_STALE, f"usage was last worked out {hours:.0f} hours ago and counts no more; contracts are as declared"
