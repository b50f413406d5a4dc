"""The managed rates as the throttle wants them: every member in both directions, on today's leaders, with what stands in the quota store.

What must not be written (another policy's, or a znode that does not read) and what may never be throttled have no floor. A rate whose
contract cannot be known now is left out; what was decided on it is found again in the ledger.
"""

from collections.abc import Iterator, Mapping

from controller_logic.common_ground import CommonGround
from controller_logic.contracts.desired import Desired
from controller_logic.contracts.targets import NOTHING, Promise, Target
from controller_logic.decision import MemberReport
from controller_logic.entity import Entity
from controller_logic.model import MAX_BYTE_RATE, LedgerEntry, Policy, QuotaKey, StoredQuota
from controller_logic.quotas.entity_plan import is_ours
from controller_logic.quotas.values import enforced_rate, same_quota
from controller_logic.readings import KEY_OF, Direction
from controller_logic.throttle.input import LastChange, ManagedRate


class ManagedRates:
    """What one pass knows of rates; `live` are the brokers that the cluster lists."""

    def __init__(self, wanted: Desired, quotas: Mapping[Entity, StoredQuota], policy: Policy, live: frozenset[int]) -> None:
        self._wanted = wanted
        self._quotas = quotas
        self._policy = policy
        self._live = live
        self._ground = CommonGround(quotas, policy, wanted)
        limits = [policy.limits.of(broker) for broker in live]
        self._largest = {way: max((limit.limit(way) or 0 for limit in limits), default=0) for way in Direction}

    def all(self) -> tuple[ManagedRate, ...]:
        """Every rate with a contract or a floor, in the order of the tiers."""
        return tuple(rate for owner in self._wanted.owners.values() for rate in self._of(owner))

    def floor(self, entity: Entity, direction: Direction) -> Target:
        """What the tier throttles it to. Raises KeyError where it is never throttled."""
        return self._wanted.floor_of(self._wanted.owners[entity]).targets[KEY_OF[direction]]

    def _of(self, owner: MemberReport) -> Iterator[ManagedRate]:
        stored = self._quotas.get(owner.entity)
        promise = owner.promise
        floors = self._wanted.floor_of(owner) if stored is not None and self._may_write(stored) else NOTHING
        for direction, key in KEY_OF.items():
            contract = self._contract(promise, floors, direction)
            if contract:
                yield self._rate(owner, stored, direction, contract=contract, floor=floors.targets.get(key))

    def _may_write(self, stored: StoredQuota) -> bool:
        return stored.problem is None and (stored.ledger is None or is_ours(stored, self._policy))

    def _contract(self, promise: Promise, floors: Promise, direction: Direction) -> int:
        """What is promised on each broker; without a contract, for the arithmetic, as much as any broker may carry. 0 = unknown."""
        key = KEY_OF[direction]
        target = promise.targets.get(key)
        if target is not None:
            return target.value
        return self._largest[direction] if key in floors.targets and key not in promise.unknown else 0

    def _rate(
        self, owner: MemberReport, stored: StoredQuota | None, direction: Direction, *, contract: int, floor: Target | None
    ) -> ManagedRate:
        key = KEY_OF[direction]
        entry = stored.ledger.entries.get(key) if stored is not None and stored.ledger is not None else None
        spread = owner.spread
        return ManagedRate(
            owner.entity,
            direction,
            owner.level,
            contract,
            None if floor is None else floor.value,
            self._in_force(stored, key),
            self._live if spread is None else spread.leading,
            last_change=_last_change(entry),
            recorded_fraction=_recorded_fraction(entry),
            producers=int(direction is Direction.INGRESS),  # one bucket tells no more than that somebody produces
        )

    def _in_force(self, stored: StoredQuota | None, key: QuotaKey) -> int | None:
        if stored is None:
            return None
        if key in stored.values:
            return enforced_rate(stored.values[key])
        beneath = self._ground.beneath(stored.entity).get(key)
        rate = None if beneath is None else enforced_rate(beneath.text)
        return rate if rate is not None and rate < MAX_BYTE_RATE else None  # a default that only meters limits nobody


def _last_change(entry: LedgerEntry | None) -> LastChange | None:
    if entry is None or same_quota(entry.previous, entry.written):
        return None
    return LastChange(entry.written_at_seconds, enforced_rate(entry.previous))


def _recorded_fraction(entry: LedgerEntry | None) -> float:
    """Of the contract; what we never wrote, or wrote as a contract, is no throttle whatever its number."""
    written = enforced_rate(entry.written) if entry is not None else None
    if entry is None or not entry.of_contract or written is None:
        return 1.0
    return written / entry.of_contract
