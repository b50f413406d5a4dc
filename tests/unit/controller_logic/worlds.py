"""Small worlds for the core's tests: policies, members and stores with everything unsaid at its
default, and a store that obeys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate_logic.contracts.desired import MemberReport
from tidegate_logic.decide import decide, settle
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import (
    Contract,
    Default,
    Entity,
    Level,
    Member,
    Observation,
    Policy,
    QuotaKey,
    QuotaWrite,
    RateForm,
    StoredQuota,
    StrimziUsers,
    Tier,
    TopicLeaders,
    Topology,
)
from tidegate_logic.quotas.leaving import GRACE_SECONDS, LOOK_EVERY_SECONDS, is_restored

FETCH = QuotaKey.CONSUMER_BYTE_RATE
PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
MB = 1_000_000
ALICE = Entity("alice")
DEFAULT_USER = Entity(Default.DEFAULT)
BOB = Entity("bob")
START_SECONDS = 1_000_000.0


def per_partition(fetch: int | None = None, produce: int | None = None) -> Contract:
    return Contract(RateForm.PER_PARTITION, fetch, produce)


def per_broker(fetch: int | None = None, produce: int | None = None) -> Contract:
    return Contract(RateForm.PER_BROKER, fetch, produce)


def total(fetch: int | None = None, produce: int | None = None) -> Contract:
    return Contract(RateForm.TOTAL, fetch, produce)


def member(entity: Entity, contract: Contract | None, *topics: str) -> Member:
    return Member(f"member-{entity.user or entity.client_id}", entity, topics, contract)


def tier(*members: Member, key: str = "streaming/orders", level: Level = Level.L1) -> Tier:
    return Tier(key, level, members)


def policy(**changes: object) -> Policy:
    return replace(Policy("streaming/main", "uid-1"), **changes)  # type: ignore[arg-type]


def topology(
    topics: Mapping[str, Mapping[int, int] | TopicLeaders], brokers: Iterable[int] = (1, 2, 3)
) -> Topology:
    leaders = {
        name: led if isinstance(led, TopicLeaders) else TopicLeaders(led)
        for name, led in topics.items()
    }
    return Topology(START_SECONDS, frozenset(brokers), leaders)


def stored(entity: Entity, values: Mapping[QuotaKey, str] | None = None) -> StoredQuota:
    return StoredQuota(entity, values or {}, version=0 if values else None)


def apply_in_memory(
    quotas: Mapping[Entity, StoredQuota], writes: Iterable[QuotaWrite]
) -> dict[Entity, StoredQuota]:
    """The store after all writes, as the real one would hold them: versions count up, an emptied
    entity is gone.
    """
    after = dict(quotas)
    for write in writes:
        before = after[write.entity]
        assert write.seen == before, (
            f"{write.entity} was decided on something else than the store holds"
        )
        values: dict[QuotaKey, str | None] = {**before.values, **write.values}
        kept = {key: text for key, text in values.items() if text is not None}
        version = (
            (-1 if before.version is None else before.version) + 1
            if write.values
            else before.version
        )
        ledger_version = (
            (-1 if before.ledger_version is None else before.ledger_version) + 1
            if write.ledger
            else None
        )
        after[write.entity] = StoredQuota(
            write.entity,
            kept,
            version if kept else None,
            write.ledger,
            ledger_version,
            notified=before.notified or bool(write.values) or write.notifies,
        )
    return after


@dataclass
class World:
    """A policy with its tiers on a cluster, and a clock that only the test moves."""

    tiers: tuple[Tier, ...] | None = ()
    policy: Policy = field(default_factory=policy)
    topology: Topology | None = field(default_factory=lambda: topology({}))
    quotas: dict[Entity, StoredQuota] | None = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    now_seconds: float = START_SECONDS
    strimzi: StrimziUsers | None = None

    def observation(self) -> Observation:
        return Observation(
            self.now_seconds,
            self.policy,
            self.tiers,
            self.topology,
            self._with_absent_entities(),
            strimzi=self.strimzi,
        )

    def decide(self) -> Decision:
        """Decide without applying."""
        decision, self.memory = decide(self.observation(), self.memory)
        return decision

    def run(self) -> Decision:
        """Decide and apply everything, as a pass does on a store that never fails."""
        decision = self.decide()
        if self.quotas is not None:
            self.quotas = apply_in_memory(self._with_absent_entities() or {}, decision.writes)
        applied = {write.entity for write in decision.writes}
        self.memory = settle(self.memory, decision, applied, now_seconds=self.now_seconds)
        return decision

    def after(self, seconds: float) -> Decision:
        self.now_seconds += seconds
        return self.run()

    def watched(self, seconds: float) -> Decision:
        """The pass after so long, and before it those that look while a quota waits."""
        ends_at_seconds = self.now_seconds + seconds
        while self.now_seconds + LOOK_EVERY_SECONDS < ends_at_seconds:
            assert self.after(LOOK_EVERY_SECONDS).writes == ()
        return self.after(ends_at_seconds - self.now_seconds)

    def after_grace(self, seconds: float) -> Decision:
        """A pass that finds quotas unwanted, and the one in which their grace is over."""
        self.after(seconds)
        return self.watched(GRACE_SECONDS)

    def is_forgotten(self, entity: Entity) -> bool:
        """Whether the ledger shows no quota of ours; it may remember a restored one."""
        record = (self.quotas or {})[entity].ledger
        return record is None or all(is_restored(entry) for entry in record.entries.values())

    def text(self, entity: Entity, key: QuotaKey = FETCH) -> str | None:
        """What stands in the store."""
        found = (self.quotas or {}).get(entity)
        return found.values.get(key) if found is not None else None

    def someone_sets(self, entity: Entity, text: str | None, key: QuotaKey = FETCH) -> None:
        """Another writer changes a quota; our ledger does not notice."""
        assert self.quotas is not None
        before = self.quotas.get(entity, stored(entity))
        values = {**before.values, key: text}
        kept = {name: value for name, value in values.items() if value is not None}
        self.quotas[entity] = replace(
            before, values=kept, version=(before.version or 0) + 1 if kept else None
        )

    def _with_absent_entities(self) -> dict[Entity, StoredQuota] | None:
        if self.quotas is None:
            return None
        named = [member.entity for tier in self.tiers or () for member in tier.members]
        return {entity: stored(entity) for entity in (*named, *self.policy.defaults)} | self.quotas


def report_of(decision: Decision, entity: Entity) -> MemberReport:
    return next(report for report in decision.members if report.entity == entity)


def orders_world(**changes: object) -> World:
    """Alice is promised 10 MB/s per partition of three partitions on three brokers."""
    promised = tier(member(ALICE, per_partition(10 * MB), "orders"))
    return World(
        (promised,), policy=policy(**changes), topology=topology({"orders": {1: 1, 2: 1, 3: 1}})
    )


def fixed_world(rate: int, **changes: object) -> World:
    """Alice is promised this many bytes per second on every broker."""
    return World((tier(member(ALICE, per_broker(rate))),), policy=policy(**changes))


def many_world(count: int = 10) -> World:
    """So many users with 1 MB/s per broker each."""
    return World(
        (tier(*[member(Entity(f"user-{number}"), per_broker(MB)) for number in range(count)]),)
    )


def run_to_the_end(world: World) -> list[str | None]:
    """Pass after pass until nothing is due; what stood after each for Alice."""
    seen = []
    for _ in range(60):
        decision = world.run()
        seen.append(world.text(ALICE))
        if decision.next_pass_in_seconds is None:
            return seen
        world.now_seconds += decision.next_pass_in_seconds
    raise AssertionError(f"still not at rest: {seen}")
