"""Runs one policy's usage rollups beside its passes, which take the last progress and do not wait.

Jobs, storage and Kubernetes may fail or hang: this thread is the only one that asks them, no other
waits for it, and no probe counts its signs of life. It runs as long as the policy asks for rollups
and this operator offers them.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from tidegate.errors import Conflict, RetryLater, TidegateError, UserActionRequired
from tidegate.kube.api import JsonObject, Kubernetes
from tidegate.kube.rollup_jobs import (
    END,
    GENERATION,
    START,
    JobPod,
    RollupResult,
    is_owned,
    job_body,
    read_result,
    result_name,
    selector,
)
from tidegate.observe.secrets_and_hosts import read_secrets
from tidegate.prometheus.settings import PROXY_VARIABLE
from tidegate.resources.fields import parse_moment
from tidegate.resources.rollup import Rollup
from tidegate.settings import UNBOUNDED, PolicyBounds, RollupOffer
from tidegate_logic.model import Usage
from tidegate_logic.reasons import Reason
from tidegate_logic.rollup_schedule import Due, JobState, Wanted, Window, WindowJob, due

log = structlog.get_logger(__name__)

# the label of a volume claim that rollup Jobs may mount
TABLES_LABEL = "tidegate.io/usage-tables"
SHORTEST_DEADLINE_SECONDS, LONGEST_DEADLINE_SECONDS = 1800, 6 * 3600


def pod_of(
    spec: Rollup, offer: RollupOffer, bounds: PolicyBounds = UNBOUNDED, *, policy_name: str
) -> JobPod:
    """The Pod of the policy's Jobs. Its deadline is the window's length, within 0.5 and 6 h."""
    driver, mount_path = spec.driver, spec.storage.mount_path
    claim = spec.storage.claim_name
    return JobPod(
        image=offer.image,
        service_account=offer.service_account,
        cores=driver.cores,
        requested_millicores=driver.requested_millicores,
        memory=driver.memory,
        deadline_seconds=min(
            LONGEST_DEADLINE_SECONDS, max(SHORTEST_DEADLINE_SECONDS, spec.interval_seconds)
        ),
        mount=None if claim is None or mount_path is None else (claim, mount_path),
        pull_secrets=offer.pull_secrets,
        security=offer.security,
        has_executors=spec.executors.instances > 0,
        login_secret=spec.storage.login_secret(policy_name),
        placement=spec.pod.placement,
        labels=spec.pod.labels or {},
        annotations=spec.pod.annotations or {},
        ephemeral_storage=spec.pod.ephemeral_storage,
        suspend=spec.suspend,
        # executors are Pods of the same image, and no Pod can read its own
        environment={
            **{one.name: one.value for one in spec.pod.env or ()},
            "TIDEGATE_IMAGE": offer.image,
            "TIDEGATE_PULL_SECRETS": ",".join(offer.pull_secrets),
            # the claim whose label was looked at: the policy may be edited before the Job reads it
            "TIDEGATE_CLAIM": claim or "",
            **bounds.environment(),
            **offer.security.environment(),
            **{name: os.environ[name] for name in (PROXY_VARIABLE,) if name in os.environ},
        },
    )


def window_job(raw: Mapping[str, Any]) -> WindowJob | None:
    """A Job as a value of the core; None for one that does not name its window."""
    annotations = raw["metadata"].get("annotations") or {}
    start, end, generation = (annotations.get(name, "") for name in (START, END, GENERATION))
    try:
        window = Window(round(parse_moment(start) * 1000), round(parse_moment(end) * 1000))
    except ValueError:
        return None
    state, ended_at, message = _end_of(raw.get("status") or {})
    ended_at_seconds = None if ended_at is None else parse_moment(ended_at)
    return WindowJob(
        raw["metadata"]["name"],
        window,
        state,
        int(generation) if generation.isdecimal() else 0,
        ended_at_seconds,
        message,
    )


def _end_of(status: Mapping[str, Any]) -> tuple[JobState, str | None, str]:
    """How the Job ended and when; one whose Pods are still on their way out has not ended yet."""
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            state = JobState.SUCCEEDED if condition["type"] == "Complete" else JobState.FAILED
            message = ": ".join(
                text for text in (condition.get("reason"), condition.get("message")) if text
            )
            return state, condition.get("lastTransitionTime"), message
    return JobState.ACTIVE, None, ""


# --- one look: read the result of the Jobs, list the Jobs, create the next one where it is due ----
#
# Only the last result that could be read is kept; it counts until its own end. Two replicas that
# look at once create the same Job, and one of them gets a Conflict; that is no failure.

Problem = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class RollupProgress:
    """The findings of a look. `offered` False = this operator makes no Jobs; the rest is unknown.

    `usage` are figures that still count, None = there are none. `trouble` ended the look early;
    `unusable` is wrong in the result. `unread`: it was never read yet, but may be soon.
    """

    looked_at_seconds: float
    offered: bool = True
    due: Due | None = None
    usage: Usage | None = None
    trouble: Problem | None = None
    unusable: Problem | None = None
    unread: bool = False


class RollupLook:
    """Looks at one policy. `may_write` is its Lease, `count` gets the outcome of each new Job."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        offer: RollupOffer,
        *,
        may_write: Callable[[], bool],
        wall: Callable[[], float],
        count: Callable[[str], None] = lambda _: None,
        bounds: PolicyBounds = UNBOUNDED,
    ) -> None:
        self._bounds = bounds
        self._kubernetes = kubernetes
        self._offer = offer
        self._may_write = may_write
        self._wall = wall
        self._count = count
        self._result: RollupResult | None = None
        self._was_read = False

    def look(self, policy: JsonObject, spec: Rollup) -> RollupProgress:
        """Look once. Kubernetes being unreachable or refusing raises nothing: that is `trouble`."""
        now_seconds = self._wall()
        found, unusable = None, None
        try:
            unusable = self._read_result(policy)
            found = self._due(policy, spec, now_seconds)
            self._act(policy, spec, found)
        except TidegateError as error:
            trouble = error.reason, error.message
            return RollupProgress(
                now_seconds,
                due=found,
                usage=self.usage(now_seconds),
                trouble=trouble,
                unusable=unusable,
                unread=not self._was_read and isinstance(error, RetryLater),
            )
        return RollupProgress(
            now_seconds,
            due=found,
            usage=self.usage(now_seconds),
            unusable=unusable or self._stale(now_seconds) or self._behind(spec),
        )

    def _read_result(self, policy: JsonObject) -> Problem | None:
        """Read the newest result; one of another policy counts as none."""
        namespace, name = policy["metadata"]["namespace"], result_name(policy["metadata"]["name"])
        result, problem = read_result(self._kubernetes, policy)
        self._result, self._was_read = result, True
        return (
            None
            if problem is None
            else (
                Reason.ROLLUP_RESULT_UNUSABLE,
                f"ConfigMap {namespace}/{name} is not used: {problem}",
            )
        )

    def _due(self, policy: JsonObject, spec: Rollup, now_seconds: float) -> Due:
        metadata = policy["metadata"]
        jobs = self._kubernetes.list_jobs(
            metadata["namespace"], selector=selector(metadata["name"])
        )
        ours = [
            job
            for raw in jobs
            if is_owned(raw, metadata["uid"]) and (job := window_job(raw)) is not None
        ]
        uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in jobs}
        wanted = Wanted(
            every_ms=spec.interval_seconds * 1000,
            since_ms=round(parse_moment(metadata["creationTimestamp"]) * 1000),
            generation=int(metadata.get("generation", 0)),
        )
        published, empty = (
            ((), ()) if self._result is None else (self._result.published, self._result.empty)
        )
        found = due(wanted, published, ours, now_ms=round(now_seconds * 1000), empty=empty)
        for job in found.obsolete:
            self._delete(policy, job, uids[job.name])
        return found

    def _delete(self, policy: JsonObject, job: WindowJob, uid: str) -> None:
        """Delete a Job that failed for an older spec: its window is tried again at once."""
        if self._may_write():
            self._kubernetes.delete_job(policy["metadata"]["namespace"], job.name, uid=uid)

    def _act(self, policy: JsonObject, spec: Rollup, found: Due) -> None:
        if (
            found.start is None
            or policy["metadata"].get("deletionTimestamp")
            or not self._may_write()
        ):
            return
        self._refuse_other_claims(policy["metadata"]["namespace"], spec)
        self._refuse_other_secrets(policy["metadata"]["namespace"], spec)
        body = job_body(
            policy,
            pod_of(spec, self._offer, self._bounds, policy_name=policy["metadata"]["name"]),
            start_ms=found.start.start_ms,
            end_ms=found.start.end_ms,
        )
        try:
            self._kubernetes.create_job(policy["metadata"]["namespace"], body)
        except Conflict:
            return
        except TidegateError:
            self._count("refused")
            raise
        self._count("made")
        log.info(
            "Rollup Job made",
            policy=f"{policy['metadata']['namespace']}/{policy['metadata']['name']}",
            job=body["metadata"]["name"],
        )

    def _refuse_other_claims(self, namespace: str, spec: Rollup) -> None:
        """Raise for a volume that is not meant for tables: Pods with it change its owner."""
        claim = spec.storage.claim_name
        if (
            claim is None
            or self._kubernetes.claim_labels(namespace, claim).get(TABLES_LABEL) == "true"
        ):
            return
        raise UserActionRequired(
            Reason.CLAIM_NOT_ALLOWED,
            f'PersistentVolumeClaim {namespace}/{claim} lacks the label {TABLES_LABEL}: "true", '
            "without which no Job mounts it: its files would change their owner. If it is for "
            f"usage tables: kubectl label pvc -n {namespace} {claim} {TABLES_LABEL}=true",
        )

    def _refuse_other_secrets(self, namespace: str, spec: Rollup) -> None:
        """Raise for a Secret that the policy names and that is not meant for policies."""
        named = spec.storage.credentials_secret_ref
        if named is not None:
            read_secrets(self._kubernetes, namespace, [named.name], bounds=self._bounds)

    def _behind(self, spec: Rollup) -> Problem | None:
        """Why the catalog lacks what is published, by the newest Job."""
        if spec.storage.catalog is None or self._result is None:
            return None
        why = self._result.catalog_problem
        return None if why is None else (Reason.CATALOG_BEHIND, why)

    def usage(self, now_seconds: float) -> Usage | None:
        return (
            None
            if self._result is None or now_seconds * 1000 > self._result.valid_until_ms
            else self._result.usage
        )

    def _stale(self, now_seconds: float) -> Problem | None:
        if (
            self._result is None
            or self._result.usage is None
            or now_seconds * 1000 <= self._result.valid_until_ms
        ):
            return None
        hours = (now_seconds - self._result.computed_at_ms / 1000) / 3600
        return (
            Reason.ROLLUP_RESULT_STALE,
            (
                f"usage was last worked out {hours:.0f} hours ago and is too old to use; contracts "
                "are as declared"
            ),
        )


LOOK_EVERY_SECONDS = 30.0
# Contracts from a recommendation must not move back and forth because a process began: its first
# pass waits this long for the first look, and no later pass waits.
FIRST_LOOK_SECONDS = 5.0
_STOP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RollupDependencies:
    """What a watch needs. `open_look` None = no image for Jobs; `wake`: the progress changed."""

    open_look: Callable[[], RollupLook] | None
    wake: Callable[[], None]
    wall: Callable[[], float]
    every_seconds: float = LOOK_EVERY_SECONDS


class RollupWatch:
    """The progress of one policy's rollups. `latest` and `close` belong to the policy's loop."""

    def __init__(self, key: str, dependencies: RollupDependencies) -> None:
        self._key = key
        self._dependencies = dependencies
        self._round: _Round | None = None

    def latest(self, policy: JsonObject, spec: Rollup | None) -> RollupProgress | None:
        """The last progress; None = none wanted, or none yet. An edit is looked at at once."""
        if spec is None:
            self.close()
            return None
        if self._dependencies.open_look is None:
            return RollupProgress(self._dependencies.wall(), offered=False)
        if self._round is None:
            self._round = _Round(
                self._key, self._dependencies, self._dependencies.open_look(), wanted=(policy, spec)
            )
            self._round.start()
            if spec.recommend.apply != "Never":
                self._round.wait_for_first(FIRST_LOOK_SECONDS)
        self._round.want(policy, spec)
        return self._round.newest

    def close(self) -> None:
        """End the thread; a look that is under way is waited for a moment only."""
        ended, self._round = self._round, None
        if ended is not None:
            ended.stop(_STOP_SECONDS)


class _Round:
    """The thread of one watch."""

    def __init__(
        self,
        key: str,
        dependencies: RollupDependencies,
        look: RollupLook,
        *,
        wanted: tuple[JsonObject, Rollup],
    ) -> None:
        self.newest: RollupProgress | None = None
        self._key = key
        self._dependencies = dependencies
        self._look = look
        self._wanted = wanted
        self._now = threading.Event()
        self._looked = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"rollups of {key}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for_first(self, timeout_seconds: float) -> None:
        self._looked.wait(timeout_seconds)

    def want(self, policy: JsonObject, spec: Rollup) -> None:
        edited = spec != self._wanted[1]
        self._wanted = (policy, spec)
        if edited:
            self._now.set()

    def stop(self, timeout_seconds: float) -> None:
        self._ended = True
        self._now.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._ended:
            self._now.clear()
            seen, before = self._seen(), self.newest
            self.newest = seen
            self._looked.set()
            if (
                before is None
                or replace(seen, looked_at_seconds=before.looked_at_seconds) != before
            ):
                self._dependencies.wake()
            if not self._ended:
                self._now.wait(self._dependencies.every_seconds)

    def _seen(self) -> RollupProgress:
        try:
            return self._look.look(*self._wanted)
        except Exception as error:
            log.exception("Look at rollups abandoned", policy=self._key)
            problem = (
                Reason.INTERNAL_ERROR,
                f"A bug in Tidegate, {type(error).__name__}: {error}. Tidegate retries",
            )
            now_seconds = self._dependencies.wall()
            return RollupProgress(now_seconds, usage=self._look.usage(now_seconds), trouble=problem)
