"""The words of the control pass as immutable values: what is declared, what is observed, what is written.

Byte rates are integers in bytes per second and always per broker unless the name says otherwise; times are
seconds since the epoch as the caller's clock gave them. Nothing here computes: see the modules named after
each step. Mappings are treated as immutable by everybody. What a pass decides and remembers is in `decision.py`.

What a pass makes by the thousand is frozen for mypy only: see `value.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller_logic.broker_limit import BrokerLimits
from controller_logic.entity import Default as Default
from controller_logic.entity import Entity as Entity
from controller_logic.entity import EntityPart as EntityPart
from controller_logic.names import BYTE_RATE_KEYS as BYTE_RATE_KEYS
from controller_logic.names import DeletionPolicy as DeletionPolicy
from controller_logic.names import Level as Level
from controller_logic.names import Mode as Mode
from controller_logic.names import QuotaKey as QuotaKey
from controller_logic.names import RateForm as RateForm
from controller_logic.names import ScalingMethod as ScalingMethod
from controller_logic.names import Speed as Speed
from controller_logic.readings import Readings
from controller_logic.reasons import Reason
from controller_logic.recommend_usage import AdviceTerms, Usage
from controller_logic.value import value

MAX_BYTE_RATE = 2**53 - 1
STALE_AFTER_SECONDS = 45.0  # three scrapes of the usual 15 s
MIN_BYTE_RATE = 1024  # a smaller Kafka quota throttles nothing (kafka-quotas 4.6)


# --- what is declared ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contract:
    """What a member is promised: byte rates in one form, plus two optional per-broker quotas. None = not managed.

    `lent` are the byte rates that only an override gives: they end with it.
    """

    form: RateForm
    fetch_bytes_per_second: int | None = None
    produce_bytes_per_second: int | None = None
    request_percentage: int | None = None
    controller_mutations_per_second: int | None = None
    lent: frozenset[QuotaKey] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether it promises nothing at all: then it limits nothing."""
        byte_rates = self.fetch_bytes_per_second is not None or self.produce_bytes_per_second is not None
        return not byte_rates and self.request_percentage is None and self.controller_mutations_per_second is None

    def gives(self, key: QuotaKey) -> bool:
        """Whether it names a byte rate for this key; False for keys that are no byte rates."""
        rate = self.fetch_bytes_per_second if key is QuotaKey.CONSUMER_BYTE_RATE else self.produce_bytes_per_second
        return key in BYTE_RATE_KEYS and rate is not None


@dataclass(frozen=True, slots=True)
class Member:
    """One entity of a tier. `topics` are names, or prefixes ending in `*`; no contract means unlimited.

    `override` is the key of the override that is laid over the contract, None = none; whoever is `exempt` is never throttled.
    """

    name: str
    entity: Entity
    topics: tuple[str, ...] = ()
    contract: Contract | None = None
    exempt: bool = False
    override: str | None = None


@dataclass(frozen=True, slots=True)
class Tier:
    """One BusinessTier. `key` is namespace/name; tiers are given to the core oldest first (that one wins an overlap).

    `throttled` is what its members drop to while a broker is over its limit, at most once in each form.
    """

    key: str
    level: Level
    members: tuple[Member, ...]
    throttled: tuple[Contract, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """The brokers' quota.window.num and quota.window.size.seconds."""

    samples: int = 11
    sample_seconds: int = 1

    @property
    def seconds(self) -> int:
        """W: how long the window is when all samples are kept."""
        return self.samples * self.sample_seconds


@dataclass(frozen=True, slots=True)
class Override:
    """One QuotaOverride. `key` is namespace/name; it is for one `entity` or for all members of one `level`.

    It either sets `rates` (byte rates only, one of them at least) or, without them, exempts from throttling. It lasts until
    `expires_at_seconds`. Overrides are given to the core oldest first (of two equals that one wins).
    """

    key: str
    expires_at_seconds: float
    reason: str
    entity: Entity | None = None
    level: Level | None = None
    rates: Contract | None = None

    @property
    def exempt(self) -> bool:
        """Whether it leaves the contract as it is and only forbids throttling."""
        return self.rates is None

    @property
    def target(self) -> str:
        """Whom it is for, in words: an entity, or a level."""
        return str(self.entity) if self.level is None else self.level.value

    def sets(self, key: QuotaKey) -> bool:
        """Whether it says what this byte rate is."""
        return self.rates is not None and self.rates.gives(key)

    def lasts(self, now_seconds: float) -> bool:
        return now_seconds < self.expires_at_seconds

    def names(self, tier: Tier, member: Member) -> bool:
        """Whether it is for this member: user and client id exactly, or the level of its tier."""
        return tier.level is self.level or member.entity == self.entity


@dataclass(frozen=True, slots=True)
class Policy:
    """One BrokerBandwidthPolicy, with every unset field already at its documented default."""

    key: str
    uid: str
    mode: Mode = Mode.ENFORCE
    paused: bool = False
    deleting: bool = False
    deletion: DeletionPolicy = DeletionPolicy.RESTORE
    scaling: ScalingMethod = ScalingMethod.MAX
    minimum_change_percent: int = 10
    window: QuotaWindow = QuotaWindow()
    max_mute_seconds: int = 12
    notifications_per_quarter_hour: int = 300
    max_removal_percent: int = 50
    confirmed_removals: int | None = None
    defaults: Mapping[Entity, Mapping[QuotaKey, int]] = field(default_factory=dict)
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    measured: bool = False  # whether it names metrics: without them nobody is throttled, and nobody stays throttled
    stale_after_seconds: float = STALE_AFTER_SECONDS
    aim_percent: int = 97
    raise_to_percent: int = 95
    hold_seconds: float = 45.0
    speed: Speed = Speed.LADDER
    enable_metering: bool = False
    advice: AdviceTerms = field(default_factory=AdviceTerms)


# --- what is observed ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """One topic: how many partitions each broker leads (brokers that lead none are absent), and how many have no leader."""

    leaders: Mapping[int, int]
    leaderless: int = 0

    @property
    def partitions(self) -> int:
        return sum(self.leaders.values()) + self.leaderless


@dataclass(frozen=True, slots=True)
class Topology:
    """Live brokers and the leaders of the managed topics, read at one moment.

    `topics` lacks a named topic that does not exist; `cluster_id` is what the brokers tell, None = they did not.
    """

    read_at_seconds: float
    brokers: frozenset[int]
    topics: Mapping[str, TopicLeaders]
    cluster_id: str | None = None


@value(frozen=True, slots=True)
class LedgerEntry:
    """What we know of one quota key that we wrote.

    `before` is the exact text that stood there before Tidegate first wrote (None = the key was absent); `written` the
    exact text that we wrote last; `previous` the text in force before that write (None = none); `basis` says for which
    promise it was computed, so that a small leader move and an edited contract can be told apart. `of_contract` is the contract in
    bytes/s that `written` is a throttle of; None = it is no throttle.
    """

    before: str | None
    written: str | None
    previous: str | None
    written_at_seconds: float
    reason: Reason
    basis: str = ""
    of_contract: int | None = None


@value(frozen=True, slots=True)
class LedgerRecord:
    """Proof of ownership for one entity: which policy wrote which keys, and what was there before."""

    entity: Entity
    policy_key: str
    policy_uid: str
    entries: Mapping[QuotaKey, LedgerEntry]


@dataclass(frozen=True, slots=True)
class StoredQuota:
    """One entity as it stands in Kafka's quota store, with our ledger record for it.

    `values` maps the quota keys that are present to their exact texts. `version` and `ledger_version` are what a later
    compare-and-set must still find (None = the node does not exist). `problem` is set when the content cannot be read
    safely; then `values` is empty and the entity must not be written.
    """

    entity: Entity
    values: Mapping[QuotaKey, str]
    version: int | None = None
    ledger: LedgerRecord | None = None
    ledger_version: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """An input that is missing: nothing is tightened and nothing released because of it. `since_seconds` is its start."""

    reason: Reason
    message: str
    since_seconds: float


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that one pass knows. None for `tiers`, `topology` or `quotas` = not known in full; `holds` says why.

    `readings` None = load is not measured, or no reading has come yet; it holds nothing up.
    `quotas` has an entry for every entity that a tier or a default names and for every entity in the ledger (an absent
    znode is an entry with version None); an entity that it lacks is unknown, not unlimited. `client_quotas_exist` says whether anybody
    has set a byte rate for a client id without a user; None = nobody looked. `usage` None = no usage tables tell anything now.
    """

    now_seconds: float
    policy: Policy
    tiers: tuple[Tier, ...] | None
    topology: Topology | None
    quotas: Mapping[Entity, StoredQuota] | None
    holds: tuple[Hold, ...] = ()
    readings: Readings | None = None
    overrides: tuple[Override, ...] = ()
    client_quotas_exist: bool | None = None
    usage: Usage | None = None


# --- what is written -------------------------------------------------------------------------------------------------


class WriteKind(StrEnum):
    """Why a write exists, in the order in which a pass sends them."""

    RECOVERY = "Recovery"  # a raise, because leaders moved: somebody gets less than promised right now
    LOWERING = "Lowering"
    RAISE = "Raise"
    FIRST = "First"
    GIVE_BACK = "GiveBack"
    RECORD = "Record"  # the quota is right already; only the ledger learns that it is ours


@value(frozen=True, slots=True)
class QuotaWrite:
    """One entity's next write: quota keys and ledger together, or nothing.

    `values` has only the keys to change: exact text, or None to remove the key. `seen` is what the decision was made
    on; the store writes only if both versions are still the same. `ledger` is the record after the write (None = delete it).
    `wording` is what `message` says: the text, or who puts it together when somebody reads it.
    """

    entity: Entity
    values: Mapping[QuotaKey, str | None]
    seen: StoredQuota
    ledger: LedgerRecord | None
    kind: WriteKind
    reason: Reason
    wording: "str | Callable[[QuotaWrite], str]"
    charged: bool
    predicted_mute_seconds: float = 0.0

    @property
    def message(self) -> str:
        """What changes, from what to what and why, for people."""
        return self.wording if isinstance(self.wording, str) else self.wording(self)
