"""What clients may have sent while no quota held them: what a first quota steps down from.

A broker that measures a client knows what it sent in the last window, whether a quota stood or not,
and mutes it for that as soon as one stands. What it measures is in the readings. Where they do not
have it, and only where a window may be full, the NIC's capacity is assumed.
"""

from math import ceil

from tidegate_logic.model import (
    DIRECTION_OF,
    KEY_OF,
    Direction,
    Entity,
    Observation,
    Policy,
    QuotaKey,
)
from tidegate_logic.quotas.leaving import Restored
from tidegate_logic.readings import Flows
from tidegate_logic.reasons import Reason

# 100 Gbit/s: no client sends more through one broker, whose NIC is not known
FASTEST_NIC_BYTES_PER_SECOND = 12_500_000_000


class SentRates:
    """The most that clients may have sent through one broker in its last window, in bytes/s.

    `restored` are the entities that were limited until lately: a broker may have their window.
    """

    def __init__(self, observation: Observation, flows: Flows, restored: Restored) -> None:
        self._flows = flows
        self._restored = restored
        self._now_seconds = observation.now_seconds
        brokers = observation.topology.brokers if observation.topology is not None else frozenset()
        self._capacity = {way: _capacity(observation.policy, brokers, way) for way in KEY_OF}
        unread = _unread(observation, brokers)
        silent = {
            way: {broker for broker in brokers if not flows.is_measured(broker, way)}
            for way in KEY_OF
        }
        self._has_gap = {way: bool(silent[way] & unread) for way in KEY_OF}
        self._reports_none = {way: bool(silent[way]) for way in KEY_OF}

    def of(self, entity: Entity, key: QuotaKey) -> int | None:
        """None = nothing is to step down from, and a quota may be set at once.

        What was measured; else the NIC's declared capacity where the reading has a gap. Where a
        broker reports other clients, one that it does not report has sent nothing. An entity that
        was limited until lately is feared to fill a NIC unless a broker's report shows otherwise,
        also where no capacity is declared.
        """
        direction = DIRECTION_OF.get(key)
        if direction is None:
            return None
        measured = self._measured(entity, direction)
        if measured is not None:
            return ceil(measured)
        if self._reports_none[direction] and key in self._restored.recent(
            entity, self._now_seconds
        ):
            return self._capacity[direction] or FASTEST_NIC_BYTES_PER_SECOND
        return self._capacity[direction] if self._has_gap[direction] else None

    def knows(self, entity: Entity) -> bool:
        """Whether a quota of the entity may have something to step down from."""
        return any(self.of(entity, key) is not None for key in DIRECTION_OF)

    def _measured(self, entity: Entity, direction: Direction) -> float | None:
        """The highest rate on any broker; of a default entity, of any client."""
        if not entity.is_default:
            found = self._flows.of((entity, direction)).values()
            return max((rate.bytes_per_second for rate in found), default=None)
        return max(
            (
                rate.bytes_per_second
                for (_, way), found in self._flows.by_key.items()
                if way is direction
                for rate in found.values()
            ),
            default=None,
        )


def _unread(observation: Observation, brokers: frozenset[int]) -> frozenset[int]:
    """The brokers whose clients should be in the reading and are not; none before the first one.

    A broker that reports no client is not one of them: it measures none, since no quota stands.
    """
    readings = observation.readings
    if readings is None:
        return frozenset()
    age_seconds = abs(observation.now_seconds - readings.read_at_seconds)
    gaps = {
        problem.broker
        for problem in readings.problems
        if problem.reason is not Reason.CLIENTS_NOT_METERED and not problem.directions
    }
    if None in gaps or age_seconds > observation.policy.stale_after_seconds:
        return brokers
    return brokers & gaps


def _capacity(policy: Policy, brokers: frozenset[int], direction: Direction) -> int | None:
    """The fastest NIC of the brokers; None = the capacity of one is not declared."""
    declared = [policy.limits.of(broker).capacity(direction) for broker in brokers]
    known = [rate for rate in declared if rate is not None]
    return max(known) if known and len(known) == len(declared) else None
