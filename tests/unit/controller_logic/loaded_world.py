"""A world whose clients send: what they want up to their quotas, through NICs that are read every
few seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.unit.controller_logic.worlds import (
    FETCH,
    MB,
    World,
    member,
    per_broker,
    policy,
    topology,
)
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    ClientRate,
    Direction,
    Entity,
    Level,
    Member,
    NicSpan,
    Observation,
    Readings,
    Tier,
)

LEADER = 1
USERS = {level: Entity(level.value.lower()) for level in Level}
THROTTLED = {Level.L1: 10 * MB, Level.L2: 5 * MB, Level.L3: MB}


@dataclass
class LoadedWorld(World):
    """Every user fetches from broker 1 what `wants` says (bytes/s), up to its quota there; `other`
    is what else its NIC carries.

    While it is `blind`, nothing is read; while its NIC `lies`, that says 0.
    """

    wants: dict[Entity, float] = field(default_factory=dict)
    other: float = 0.0
    scrape_seconds: float = 5.0
    blind: bool = False
    lies: bool = False
    spans: tuple[NicSpan, ...] = ()

    def sends(self, user: Entity) -> float:
        text = self.text(user)
        return min(self.wants[user], float("inf") if text is None else float(text))

    @property
    def carried(self) -> float:
        """What the NIC of broker 1 carries now."""
        return self.other + sum(self.sends(user) for user in self.wants)

    def observation(self) -> Observation:
        return replace(super().observation(), readings=None if self.blind else self._readings())

    def scrape(self) -> Decision:
        """Let one scrape interval pass, read, decide and apply; then the passes that are due before
        the next scrape.
        """
        until = self.now_seconds + self.scrape_seconds
        decision = self._at(until)
        first = decision
        while (
            due := decision.next_pass_in_seconds
        ) is not None and self.now_seconds + due < until + self.scrape_seconds:
            self.now_seconds += due
            decision = self.run()
        self.now_seconds = until
        return first

    def minutes(self, minutes: float) -> list[Decision]:
        return [self.scrape() for _ in range(int(minutes * 60 / self.scrape_seconds))]

    def _at(self, seconds: float) -> Decision:
        self.now_seconds = seconds
        self.spans = (
            *self.spans[-20:],
            NicSpan(seconds, self.scrape_seconds, 0.0 if self.lies else self.carried),
        )
        return self.run()

    def _readings(self) -> Readings:
        at_seconds = self.spans[-1].at_seconds if self.spans else self.now_seconds
        clients = {
            (user, LEADER, Direction.EGRESS): self._rate(user, at_seconds) for user in self.wants
        }
        return Readings(
            self.now_seconds, self.scrape_seconds, {(LEADER, Direction.EGRESS): self.spans}, clients
        )

    def _rate(self, user: Entity, at_seconds: float) -> ClientRate:
        sent = self.sends(user)
        return ClientRate(at_seconds, sent, 1000.0 if sent < self.wants[user] else 0.0)


def loaded_world(
    *, limit: int = 1000 * MB, contracts: Mapping[Level, int] | None = None, **changes: object
) -> LoadedWorld:
    """One user of each level that wants 25 MB/s from broker 1, with a contract of 60 MB/s;
    throttled rates 10, 5 and 1 MB/s.
    """
    promised = contracts or dict.fromkeys(Level, 60 * MB)
    tiers = tuple(
        _tier(level, member(USERS[level], per_broker(rate), "orders"))
        for level, rate in promised.items()
    )
    limits = BrokerLimits(BrokerLimit(egress=limit, egress_capacity=1250 * MB))
    world = LoadedWorld(
        tiers,
        policy=policy(limits=limits, measured=True, **changes),
        topology=topology({"orders": {LEADER: 1}}, brokers=(LEADER,)),
    )
    world.wants = {USERS[level]: 25.0 * MB for level in promised}
    return world


def _tier(level: Level, *members: Member) -> Tier:
    rates = (per_broker(THROTTLED[level]),) if level in THROTTLED else ()
    return Tier(f"streaming/{level.value.lower()}", level, members, rates)


def set_limit(world: LoadedWorld, limit: int) -> None:
    """Somebody edits the policy."""
    limits = BrokerLimits(BrokerLimit(egress=limit, egress_capacity=1250 * MB))
    world.policy = replace(world.policy, limits=limits)


def in_force(world: LoadedWorld) -> dict[Level, int | None]:
    """What stands for each level's user, in bytes/s."""
    texts = {level: world.text(user, FETCH) for level, user in USERS.items()}
    return {level: None if text is None else int(text) for level, text in texts.items()}
