"""A load that is played for the console: no cluster, no Kubernetes, no Prometheus.

A scenario of `tidegate simulate` goes through the operator's own decisions. After each pass the
statuses are made as the operator makes them, so that the pages show what they would show of a real
cluster. The clock is the scenario's: it runs faster than the time of day, or stands.
"""

import copy
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.console.history import Past
from tidegate.console.source import Trail
from tidegate.control.audit.lines import AuditLine
from tidegate.control.reconcile import PassResult
from tidegate.control.report.events import EventDraft, broker_events, level_events
from tidegate.control.report.status import policy_verdict, tier_verdict
from tidegate.errors import UserActionRequired
from tidegate.kafka.quota_store import ClusterFacts
from tidegate.observe.declared import declare, object_key
from tidegate.observe.observation import ObservationResult
from tidegate.simulation.play import Scenario, play
from tidegate.tracing import new_pass_id
from tidegate.view.policy import LeaseNow, Measured, Objects
from tidegate_logic.decision import Decision
from tidegate_logic.model import Mode, Observation, Topology
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339

HOLDER = "simulated-operator"
SPEEDS = (1, 5, 20, 60)
_CREATED = "2026-01-01T00:00:00Z"
Document = dict[str, Any]


@dataclass(frozen=True)
class Moment:
    """One pass: when it was, what was seen, and the objects with their statuses after it."""

    at_seconds: float
    observation: Observation
    decision: Decision
    objects: Objects


def moments(
    scenario: Scenario,
    policy: Mapping[str, Any],
    tiers: Sequence[Mapping[str, Any]],
    *,
    holder: str = HOLDER,
) -> tuple[Moment, ...]:
    """Every pass of the scenario. Its objects are as they were written, in mode Enforce."""
    enforcing = replace(scenario.policy, mode=Mode.ENFORCE, paused_by=())
    own, others = _as_served(policy, 0), [_as_served(one, n) for n, one in enumerate(tiers, 1)]
    own["spec"] = {**own["spec"], "mode": Mode.ENFORCE.value, "suspend": False}
    key = object_key(own)
    found: list[Moment] = []
    events: list[Document] = []

    def note(observation: Observation, decision: Decision) -> None:
        before, at_seconds = own.get("status") or {}, observation.now_seconds
        observation = replace(observation, policy=enforcing)
        write_statuses(own, others, observation, decision)
        pass_id = new_pass_id(holder, key, at_seconds)
        drafts = (
            *broker_events(before, decision.watched),
            *level_events(before, decision.levels),
        )
        for draft in drafts:
            events.append(_event(len(events), own, draft, at_seconds, pass_id))
        objects = Objects(
            (copy.deepcopy(own),),
            tuple(copy.deepcopy(others)),
            heard_at_seconds=at_seconds,
            events=tuple(events),
            leases={key: LeaseNow(holder, at_seconds)},
        )
        found.append(Moment(at_seconds - scenario.epoch_seconds, observation, decision, objects))

    play(scenario, note)
    return _until_the_load_ends(found)


def _until_the_load_ends(passes: Sequence[Moment]) -> tuple[Moment, ...]:
    """Without the passes at the end in which nothing is sent any more: they show an empty cluster.

    All of them where nothing is ever sent.
    """
    last = max((n for n, one in enumerate(passes) if _is_loaded(one)), default=len(passes))
    return tuple(passes[: last + 1])


def _is_loaded(moment: Moment) -> bool:
    readings = moment.observation.readings
    nics = () if readings is None else readings.nic.values()
    return any(spans[-1].bytes_per_second > 0 for spans in nics if spans)


def write_statuses(
    policy: Document, tiers: Sequence[Document], observation: Observation, decision: Decision
) -> None:
    """Write the statuses as the operator does after this pass: its writes are applied by then."""
    decision, facts = replace(decision, writes=()), None
    if not observation.missing:
        brokers = len(observation.topology.brokers) if observation.topology is not None else 0
        answered_by = f"{brokers} of {brokers} brokers"
        facts = ClusterFacts("simulated", 1, False, None, answered_by=answered_by)
    seen = ObservationResult(observation, facts)
    spec = declare(policy, tiers).spec
    verdict = policy_verdict(PassResult(seen, decision), spec, previous=policy.get("status") or {})
    policy["status"] = _status(verdict, observation.now_seconds, policy.get("status"))
    for tier in tiers:
        members = [one for one in decision.members if one.tier_key == object_key(tier)]
        made = tier_verdict(members, decision, observation.policy.mode)
        tier["status"] = _status(made, observation.now_seconds, tier.get("status"))


@dataclass
class PlayedSource:
    """Shows the moment that the clock has come to. At the end it stands.

    `begun_seconds` is the time of the first moment, by the scenario's clock. With
    `waits_for_viewer` the clock stands until `begin`. Any thread may ask.
    """

    passes: Sequence[Moment]
    begun_seconds: float
    speed: int = 20
    monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    waits_for_viewer: bool = False
    _at_seconds: float = 0.0  # of the scenario, when the speed was set
    _set_at: float | None = None
    _times: list[float] = field(default_factory=list)
    speeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.speeds = tuple(sorted({*SPEEDS, self.speed}))
        self._times = [one.at_seconds for one in self.passes]
        self._at_seconds = max(0.0, self._times[0])
        self._set_at = None if self.waits_for_viewer else self.monotonic()

    def begin(self) -> None:
        """Someone looks: it plays from now on, if it has not been begun before."""
        with self._lock:
            if self.waits_for_viewer:
                self.waits_for_viewer, self._set_at = False, self.monotonic()

    @property
    def is_paused(self) -> bool:
        return self._set_at is None

    @property
    def is_over(self) -> bool:
        return self.at_seconds() >= self._times[-1]

    def at_seconds(self) -> float:
        """How much of the scenario is over."""
        with self._lock:
            return self._at()

    def go(self, speed: int | None = None) -> None:
        """Play on, or again from the begin where it is over; at another speed if one is given."""
        with self._lock:
            at = self._at()
            self._at_seconds = 0.0 if at >= self._times[-1] else at
            self._set_at, self.speed = self.monotonic(), speed or self.speed

    def pause(self) -> None:
        with self._lock:
            self._at_seconds, self._set_at = self._at(), None

    def _at(self) -> float:
        if self._set_at is None:
            return self._at_seconds
        gone = (self.monotonic() - self._set_at) * self.speed
        return min(self._at_seconds + gone, self._times[-1])

    def _moment(self) -> Moment:
        return self.passes[max(0, bisect_right(self._times, self.at_seconds()) - 1)]

    # What pages ask for

    @property
    def cluster(self) -> "PlayedSource":
        return self

    def topology(self, policy_key: str) -> Topology:  # noqa: ARG002
        found = self._moment().observation.topology
        if found is None:
            raise UserActionRequired(Reason.TOPOLOGY_INCOMPLETE, "No leaders are simulated now")
        return found

    def explain(self, policy_key: str, user: str, client_id: str) -> Mapping[str, Any]:  # noqa: ARG002
        raise UserActionRequired(
            Reason.INVALID_SPEC, "Quota levels are Kafka's, and this load is played without one"
        )

    def now_seconds(self) -> float:
        return self.begun_seconds + self.at_seconds()

    def changes(self) -> object:
        return id(self._moment())

    def objects(self) -> Objects:
        moment, now_seconds = self._moment(), self.now_seconds()
        leases = {
            key: LeaseNow(lease.holder, now_seconds) for key, lease in moment.objects.leases.items()
        }
        return replace(moment.objects, heard_at_seconds=now_seconds, leases=leases)

    def measured(self, policy_key: str) -> Measured:  # noqa: ARG002
        return Measured(self._moment().observation.readings)

    def past(self, policy_key: str) -> Past | None:  # noqa: ARG002
        return None

    def trail(self) -> Trail:
        lines: tuple[AuditLine, ...] = ()
        return Trail(lines, "a load that is played has no audit trail")


def _as_served(written: Mapping[str, Any], number: int) -> Document:
    """An object as an API server has it."""
    document = copy.deepcopy(dict(written))
    document["metadata"] |= {
        "uid": f"uid-{number}",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": _CREATED,
    }
    return document


def _event(
    number: int, policy: Document, draft: EventDraft, at_seconds: float, pass_id: str
) -> Document:
    metadata = policy["metadata"]
    return {
        "kind": "Event",
        "metadata": {
            "uid": f"event-{number}",
            "namespace": metadata["namespace"],
            "annotations": {"tidegate.io/pass": pass_id},
        },
        "regarding": {
            "kind": "BrokerBandwidthPolicy",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
        },
        "eventTime": rfc3339(at_seconds),
        "type": draft.type,
        "reason": draft.reason.value,
        "note": draft.message,
    }


def _status(verdict: Any, now_seconds: float, before: Mapping[str, Any] | None) -> Document:
    document: Document = verdict.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    known = {one["type"]: one for one in (before or {}).get("conditions") or ()}
    at = rfc3339(now_seconds)
    document["conditions"] = [
        {
            "type": one.type,
            "status": one.status.value,
            "reason": one.reason.value,
            "message": one.message,
            "lastTransitionTime": known[one.type]["lastTransitionTime"]
            if known.get(one.type, {}).get("status") == one.status.value
            else at,
        }
        for one in verdict.verdicts
    ]
    return document
