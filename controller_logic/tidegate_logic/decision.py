"""What a pass decides and what it remembers, as immutable values.

The adapters never see these; `control/` hands them to apply and report. Units as in `model.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate_logic.contracts.adaptive import Adaptations
from tidegate_logic.contracts.budgets import BudgetMemory, BudgetReport
from tidegate_logic.contracts.desired import MemberReport, Standing
from tidegate_logic.contracts.overrides import Overridden
from tidegate_logic.contracts.recommend import Recommendations
from tidegate_logic.contracts.share_groups import ShareUse
from tidegate_logic.model import Advice, Entity, Hold, Level, Note, QuotaWrite
from tidegate_logic.quotas.budget import RemovalMemory, WritePace
from tidegate_logic.quotas.contention import Contention, Repairs
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.calendar import LevelCalendar
from tidegate_logic.throttle.decision import ThrottleDecision
from tidegate_logic.throttle.input import ThrottleMemory
from tidegate_logic.throttle.nic_status import NicKey, Pressure, Watched
from tidegate_logic.throttle.schedules import LimitsNow


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a level was throttled first: the words of it, when, and for which NICs.

    `seen` is what each of these NICs carried when that was known last: bytes/s, and the sample's
    time. `is_waiting`: its first cut is decided, and not written yet.
    """

    words: str
    at_seconds: float
    nics: tuple[NicKey, ...]
    seen: Mapping[NicKey, tuple[float, float]] = field(default_factory=dict)
    is_waiting: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What one pass hands to the next; if it is lost, steps and budget come from the ledger.

    `charged` holds (time, number of charged entity writes), oldest first, of the write budget's
    last period, `notified` likewise the writes of the last minute that only notified brokers (None
    = a process that has just begun). `tier_of` is which tier named each entity last, as long as it
    has a quota for it; `removals` is what the guard against mass removals needs; `held_since` is
    since when each hold has been there without a break; `pressures` what was said of each broker
    last; `causes` why each throttled level was throttled first. `throttle` and `pace` belong to the
    throttle and to the spread of its writes, `adaptations` to scaling method Adaptive, `measured`
    to reads from followers. `advised` is what was recommended last, `resync` the value of the
    annotation that was acted on; None = none was seen yet, and there is nothing to forget.
    `share_uses` are the members that share groups use, and those they did until lately.
    `budgets` is what BandwidthBudgets allow.
    `standing` saves making again what follows from contracts and leaders alone.
    """

    charged: tuple[tuple[float, int], ...] = ()
    notified: tuple[tuple[float, int], ...] | None = None
    repairs: Mapping[Entity, Repairs] = field(default_factory=dict)
    tier_of: Mapping[Entity, str] = field(default_factory=dict)
    removals: RemovalMemory = field(default_factory=RemovalMemory)
    held_since: Mapping[Reason, float] = field(default_factory=dict)
    pressures: Mapping[int, Pressure] = field(default_factory=dict)
    throttle: ThrottleMemory | None = None
    pace: WritePace | None = None
    causes: Mapping[Level, Cause] = field(default_factory=dict)
    adaptations: Adaptations = field(default_factory=dict)
    measured: Adaptations = field(default_factory=dict)
    advised: Recommendations | None = None
    resync: str | None = None
    share_uses: Mapping[Entity, ShareUse] = field(default_factory=dict)
    budgets: BudgetMemory = field(default_factory=BudgetMemory)
    standing: Standing | None = field(default=None, repr=False, compare=False)


class LevelState(StrEnum):
    """What all members of a level together are."""

    CONTRACT = "Contract"
    STEPPING = "Stepping"
    THROTTLED = "Throttled"
    RELAXING = "Relaxing"


@dataclass(frozen=True, slots=True)
class LevelReport:
    """One level with members, of which `below_contract` are throttled now.

    `because` says which broker's load began the throttling, and at what time; `now` what these
    brokers carry now, or when that was known last. Empty = not throttled, or not remembered.
    `by_calendar` = the calendar alone keeps them below their contracts.
    """

    level: Level
    state: LevelState
    because: str = ""
    since_seconds: float | None = None
    now: str = ""
    members: int = 0
    below_contract: int = 0
    by_calendar: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What one pass decided; every number that a user sees comes from here.

    `writes` are in sending order and empty when nothing has to change, when `holds` forbid it, or
    in Observe mode, where `would_write` carries them instead. `managed` counts entities that have
    (or would have) a quota of ours, `in_sync` those at their target once the writes are applied,
    `unnotified` those of which brokers may not know, and are notified later,
    `contended` those left alone. `next_pass_in_seconds` is when a step is due or the budget has
    room again, None = no need before the usual poll. `overridden` says which overrides apply, and
    when one ends. `finished_deleting` is true when a deleting policy has nothing left to restore.
    `watched` has every live broker against its limits; None = load is not known. `throttle` is what
    load made of every rate, None = the policy measures none, or the pass is held. `levels` is what
    each level with members is; none while the pass is held. `advice` is what usage says of members'
    contracts, by tier and member. `leaving` are entities with a quota that no contract names any
    more, and when it is restored (epoch seconds), unless one does again. `calendar` is what is in
    force for each level that the policy's calendar names, and what comes next; `limits` what the
    schedules of brokers' limits say, None = there are none.
    """

    writes: tuple[QuotaWrite, ...] = ()
    would_write: tuple[QuotaWrite, ...] = ()
    members: tuple[MemberReport, ...] = ()
    holds: tuple[Hold, ...] = ()
    notes: tuple[Note, ...] = ()
    managed: int = 0
    in_sync: int = 0
    unnotified: int = 0
    contended: Mapping[Entity, Contention] = field(default_factory=dict)
    largest_leader_skew: float | None = None
    deferred_writes: int = 0
    next_pass_in_seconds: float | None = None
    finished_deleting: bool = False
    watched: Watched | None = None
    throttle: ThrottleDecision | None = None
    levels: tuple[LevelReport, ...] = ()
    overridden: Overridden = field(default_factory=Overridden)
    advice: Mapping[tuple[str, str], tuple[Advice, ...]] = field(default_factory=dict)
    resynced: str = ""
    leaving: Mapping[Entity, float] = field(default_factory=dict)
    calendar: tuple[LevelCalendar, ...] = ()
    limits: LimitsNow | None = None
    budgets: Mapping[str, BudgetReport] = field(default_factory=dict)
