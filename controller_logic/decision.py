"""What a pass decides and what it remembers, as frozen dataclasses.

The adapters never see these; `control/` hands them to apply and report. Units as in `model.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller_logic.model import Entity, Hold, Level, QuotaKey, QuotaWrite
from controller_logic.reasons import Reason


@dataclass(frozen=True, slots=True)
class Repairs:
    """How often an entity was put back after another writer changed it, and until when we leave it alone."""

    count: int
    last_at_seconds: float
    suspended_until_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What one pass hands to the next. Losing it is safe: steps and budget are recovered from the ledger.

    `charged` holds (time, number of charged entity writes), oldest first, of the last quarter of an hour.
    `confirmed_removals` are the entities that a person confirmed for removal and that are not all given back yet;
    `held_since` says since when the holds stand that the core itself found.
    """

    charged: tuple[tuple[float, int], ...] = ()
    repairs: Mapping[Entity, Repairs] = field(default_factory=dict)
    confirmed_removals: frozenset[Entity] = frozenset()
    held_since: Mapping[Reason, float] = field(default_factory=dict)


class MemberState(StrEnum):
    """What a member's status says of it."""

    CONTRACT = "Contract"
    STEPPING = "Stepping"
    UNLIMITED = "Unlimited"
    HELD = "Held"
    TOPIC_NOT_FOUND = "TopicNotFound"
    FOREIGN_CONTENT = "ForeignContent"
    CONTENDED = "Contended"
    OVERLAPPING = "Overlapping"


@dataclass(frozen=True, slots=True)
class MemberReport:
    """One member after the pass. Rates are bytes per second.

    `quota` is what is in force per broker once the pass's writes are applied, `target` what it should end at (equal but
    while stepping or held); `contract_total` is what was promised over all brokers, `permitted_total` what the target
    allows (target x brokers that lead); both are None where the member has no topics or the leaders are unknown.
    """

    tier_key: str
    member_name: str
    entity: Entity
    level: Level
    state: MemberState
    reason: Reason
    message: str
    leaders: int | None
    leading_brokers: int | None
    leader_skew: float | None
    quota: Mapping[QuotaKey, int]
    target: Mapping[QuotaKey, int]
    contract_total: Mapping[QuotaKey, int]
    permitted_total: Mapping[QuotaKey, int]


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
    due or the budget has room again, None = no need before the usual poll.
    `finished_deleting` is true when a deleting policy has nothing left to give back.
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
