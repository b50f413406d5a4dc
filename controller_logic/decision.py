"""What a pass decides and what it remembers, as immutable values.

The adapters never see these; `control/` hands them to apply and report. Units as in `model.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller_logic.contracts.adaptive import Adaptations
from controller_logic.contracts.leaders import LeaderSpread
from controller_logic.contracts.overrides import Overridden
from controller_logic.contracts.recommend import Recommendations
from controller_logic.contracts.targets import Promise, QuotaScaling, promise_of
from controller_logic.model import Advice, Entity, Hold, Level, Member, QuotaKey, QuotaWrite, Tier
from controller_logic.quotas.budget import Repairs, WritePace
from controller_logic.reasons import Reason
from controller_logic.throttle.decision import ThrottleDecision
from controller_logic.throttle.input import ThrottleMemory
from controller_logic.throttle.pressure import Pressure, Watched
from controller_logic.value import value


@dataclass(frozen=True, slots=True)
class RemovalMemory:
    """What the guard against mass removals remembers of the last quarter of an hour.

    `managed` has (time, count of managed entities), oldest and highest first; `left` since when each entity that was let go is leaving;
    `confirmed` are those that a person confirmed for removal and that are not all given back yet.
    """

    managed: tuple[tuple[float, int], ...] = ()
    left: Mapping[Entity, float] = field(default_factory=dict)
    confirmed: frozenset[Entity] = frozenset()


@dataclass(frozen=True, slots=True)
class Memory:
    """What one pass hands to the next. Losing it is safe: steps and budget are recovered from the ledger.

    `charged` holds (time, number of charged entity writes), oldest first, of the write budget's last period.
    `removals` is what the guard against mass removals needs;
    `held_since` says since when the holds stand that the core itself found; `pressures` what was said of each broker last;
    `causes` why each throttled level was throttled first. `throttle` and `pace` belong to the throttle and to the spread of its writes,
    `adaptations` to scaling method Adaptive. `advised` is what was recommended last.
    """

    charged: tuple[tuple[float, int], ...] = ()
    repairs: Mapping[Entity, Repairs] = field(default_factory=dict)
    removals: RemovalMemory = field(default_factory=RemovalMemory)
    held_since: Mapping[Reason, float] = field(default_factory=dict)
    pressures: Mapping[int, Pressure] = field(default_factory=dict)
    throttle: ThrottleMemory | None = None
    pace: WritePace | None = None
    causes: Mapping[Level, str] = field(default_factory=dict)
    adaptations: Adaptations = field(default_factory=dict)
    advised: Recommendations | None = None


class MemberState(StrEnum):
    """What a member's status says of it."""

    CONTRACT = "Contract"
    THROTTLED = "Throttled"
    STEPPING = "Stepping"
    UNLIMITED = "Unlimited"
    HELD = "Held"
    TOPIC_NOT_FOUND = "TopicNotFound"
    FOREIGN_CONTENT = "ForeignContent"
    CONTENDED = "Contended"
    OVERLAPPING = "Overlapping"


@value(frozen=True, slots=True)
class MemberReport:
    """One member after the pass. Rates are bytes per second.

    `ground` is what its contract stands on, None where nothing is promised. `wording` is what `message` says, None = what is
    promised. `in_force` is what stands per broker once the pass's writes are applied, None = what is promised.
    """

    tier: Tier
    member: Member
    ground: QuotaScaling | None
    state: MemberState
    reason: Reason
    wording: str | None = None
    in_force: Mapping[QuotaKey, int] | None = None

    @property
    def tier_key(self) -> str:
        return self.tier.key

    @property
    def level(self) -> Level:
        return self.tier.level

    @property
    def member_name(self) -> str:
        return self.member.name

    @property
    def entity(self) -> Entity:
        return self.member.entity

    @property
    def message(self) -> str:
        """Why the member is in this state, with its numbers, for people."""
        return str(self.promise) if self.wording is None else self.wording

    @property
    def promise(self) -> Promise:
        """The contract on its ground, worked out when it is asked for."""
        return promise_of(self.member.contract, self.ground)

    @property
    def spread(self) -> LeaderSpread | None:
        """How the leaders of its topics lie; None where it has none or the leaders are unknown."""
        return self.ground.spread if self.ground is not None else None

    @property
    def leaders(self) -> int | None:
        """Leaders of its topics; None as above."""
        return self.spread.leaders if self.spread is not None else None

    @property
    def leading_brokers(self) -> int | None:
        """Brokers that lead any of them; None as above."""
        return self.spread.brokers if self.spread is not None else None

    @property
    def leader_skew(self) -> float | None:
        """How unevenly they lie; None as above, and where nobody leads."""
        return self.spread.skew if self.spread is not None else None

    @property
    def quota(self) -> Mapping[QuotaKey, int]:
        """What is in force per broker once the pass's writes are applied."""
        return self.promise.values if self.in_force is None else self.in_force

    @property
    def target(self) -> Mapping[QuotaKey, int]:
        """What `quota` should end at: equal but while stepping or held."""
        return self.promise.values

    @property
    def contract_total(self) -> Mapping[QuotaKey, int]:
        """What was promised over all brokers; empty where leaders are unknown or the promise depends on none."""
        return self.promise.contract_total

    @property
    def permitted_total(self) -> Mapping[QuotaKey, int]:
        """What the target allows: target x brokers that lead; empty as above."""
        return self.promise.permitted_total


class LevelState(StrEnum):
    """What all members of a level together are."""

    CONTRACT = "Contract"
    STEPPING = "Stepping"
    THROTTLED = "Throttled"
    RELAXING = "Relaxing"


@dataclass(frozen=True, slots=True)
class LevelReport:
    """One level with members. `because` says which broker's load began the throttling; empty = not throttled, or nobody remembers.

    `below_contract` of the `members` are throttled now.
    """

    level: Level
    state: LevelState
    because: str = ""
    members: int = 0
    below_contract: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """Something that people should be told about the policy as a whole or about one entity."""

    reason: Reason
    message: str
    entity: Entity | None = None
    tier_key: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What one pass decided; every number that a user sees comes from here.

    `writes` are in sending order and empty when nothing has to change, when `holds` forbid it, or in Observe mode, where
    `would_write` carries them instead. `managed` counts entities that have (or would have) a quota of ours, `in_sync`
    those at their target once the writes are applied, `contended` those left alone. `next_pass_in_seconds` is when a step is
    due or the budget has room again, None = no need before the usual poll. `overridden` says which overrides apply, and when one ends.
    `finished_deleting` is true when a deleting policy has nothing left to give back. `watched` has every live broker against its limits;
    None = load is not known. `throttle` is what load made of every rate, None = the policy measures none, or the pass is held.
    `levels` is what each level with members is; none while the pass is held. `advice` is what usage says of members' contracts, by tier
    and member.
    """

    writes: tuple[QuotaWrite, ...] = ()
    would_write: tuple[QuotaWrite, ...] = ()
    members: tuple[MemberReport, ...] = ()
    holds: tuple[Hold, ...] = ()
    notes: tuple[Note, ...] = ()
    managed: int = 0
    in_sync: int = 0
    contended: int = 0
    largest_leader_skew: float | None = None
    deferred_writes: int = 0
    next_pass_in_seconds: float | None = None
    finished_deleting: bool = False
    watched: Watched | None = None
    throttle: ThrottleDecision | None = None
    levels: tuple[LevelReport, ...] = ()
    overridden: Overridden = field(default_factory=Overridden)
    advice: Mapping[tuple[str, str], tuple[Advice, ...]] = field(default_factory=dict)
