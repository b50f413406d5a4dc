"""Every number of a report, and its column in the tables. Page, CSV and JSON compute nothing.

Bytes are whole numbers, rates are bytes per second, times are UTC in ISO 8601, shares are fractions
of one, amounts of money are exact decimals. None means "unknown" or "does not apply", never zero. A
rate is on one broker, as contracts are: each broker applies a quota to its own traffic alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated

from tidegate.report.columns import Column, Kind

# A type with the quantity by which a column writes it.

Count = Annotated[int, Kind.COUNT]
Volume = Annotated[int, Kind.VOLUME]
Rate = Annotated[float, Kind.RATE]
WholeRate = Annotated[int, Kind.RATE]
Seconds = Annotated[float, Kind.SECONDS]
WholeSeconds = Annotated[int, Kind.SECONDS]
BrokerHours = Annotated[float, Kind.BROKER_HOURS]
Share = Annotated[float, Kind.SHARE]
Tolerance = Annotated[float, Kind.TOLERANCE]
Change = Annotated[float, Kind.CHANGE]
Factor = Annotated[float, Kind.FACTOR]
Money = Annotated[Decimal, Kind.MONEY]
Moment = Annotated[str, Kind.MOMENT]
Flag = Annotated[bool, Kind.FLAG]
Labels = Annotated[Mapping[str, str], Kind.LABELS]
UnitPrice = Annotated[Decimal, Kind.PRICE]
Score = Annotated[float, Kind.SCORE]
Day = Annotated[str, Kind.DAY]

# What several tables have.

_Broker = Annotated[Count, Column("Broker")]
_Member = Annotated[str, Column("Member")]
_Tier = Annotated[str, Column("Tier", absent="no tier")]
_Level = Annotated[str, Column("Level")]
_User = Annotated[str, Column("User")]
_ClientId = Annotated[str, Column("Client id")]
_Direction = Annotated[str, Column("Direction")]
_Members = Annotated[Count, Column("Members")]
_Start = Annotated[Moment, Column("From")]
_End = Annotated[Moment, Column("Until")]
_Length = Annotated[Seconds, Column("Length")]
_Fetched = Annotated[Volume, Column("Fetched")]
_Produced = Annotated[Volume, Column("Produced")]
_Bytes = Annotated[
    Volume, Column("Volume", "Bytes moved; estimates that add up to the brokers' own counts")
]
_Unattributed = Annotated[
    Volume,
    Column(
        "Unattributed", "Counted by brokers, explained by no user's gauge; not billed to any member"
    ),
]
_UnattributedAmount = Annotated[
    Money | None,
    Column("Unattributed cost", "At the price of its direction; in no other amount of this table"),
]
_Deferred = Annotated[
    Volume,
    Column(
        "Held back (estimate)", "Bytes delayed while it was throttled; Kafka drops none of them"
    ),
]
_Throttled = Annotated[
    BrokerHours,
    Column(
        "Throttled",
        "Hours in which a broker delayed it, by its own gauge, added up over brokers: four "
        "hours on six brokers are at most 24",
    ),
]
_DirectionShare = Annotated[
    Share | None, Column("Share", "Of all members' bytes in this direction")
]
_VolumeChange = Annotated[
    Change | None,
    Column("Change", "Of the volume, against the period before; a dash where that is not known"),
]
_Tolerance = Annotated[
    Tolerance | None,
    Column(
        "Tolerance",
        "How far the volume, and a price by volume, may be off; a dash where a line is exact",
    ),
]
_AMOUNT = Column("Price", "Rounded to hundredths; totals are sums of these")
_Amount = Annotated[Money | None, _AMOUNT]
_CONTRACT = Column("Contract", "On each broker", absent="unlimited")
_EPISODES = Column("Episodes", "Episodes that began in it")
_BELOW = Column("Below contract")
_RELAXING = Column("Relaxing", "On the way back to the contracted rate")
_Mean = Annotated[Rate, Column("Mean")]
_BUSIEST_SHARE = Column("Busiest of limit")


@dataclass(frozen=True, slots=True)
class Period:
    """[start, end) with `windows` of the grain; `published_windows` of them are in the tables.

    A published window may have no usage. `name` is a month's, "" for other periods; `timezone` the
    one in which it begins and ends. `before` is the period before it, "" = none was compared, and
    `before_is_complete` whether all of that one is published.
    """

    name: str
    timezone: str
    start: str
    end: str
    before: str
    before_is_complete: bool
    seconds: float
    grain: str
    windows: int
    published_windows: int


@dataclass(frozen=True, slots=True)
class Price:
    """What is charged from `start` to `end`: `amount` for each `unit`.

    `what` is a direction, a direction of a level, or what else has a price.
    """

    start: _Start
    end: _End
    what: Annotated[str, Column("What")]
    amount: Annotated[UnitPrice | None, Column("Price", absent="not charged")]
    unit: Annotated[str, Column("For a")]


@dataclass(frozen=True, slots=True)
class Charge:
    """A line of the bill: what was charged for [start, end), rounded to hundredths.

    `kind` is Usage, Unattributed or Replication; Unshared is a cost for which nobody had a share.
    A line of no member has "" instead of its names.
    """

    start: _Start
    end: _End
    kind: Annotated[str, Column("Charged for")]
    member: _Member
    tier: _Tier
    level: _Level
    user: _User
    client_id: _ClientId
    labels: Annotated[Labels, Column("Labels")]
    direction: _Direction
    bytes: _Bytes
    per_gib: Annotated[UnitPrice | None, Column("Price of a GiB", absent="share of a cost")]
    amount: Annotated[Money, _AMOUNT]


@dataclass(frozen=True, slots=True)
class BillLine(Charge):
    """A charge, and how far its estimate may be off; None if it is exact."""

    tolerance: _Tolerance


@dataclass(frozen=True, slots=True)
class Correction(Charge):
    """A line on this bill for a month that was closed: what it is more or less than was billed.

    `start` and `end` are of that month, `bytes` and `amount` are differences, in its `currency`.
    """

    end: Annotated[Moment, Column("Until", on_page=False)]
    level: Annotated[str, Column("Level", on_page=False)]
    bytes: Annotated[Volume, Column("Difference", "To what was billed until now")]
    amount: Annotated[Money, Column("Amount", "At the rates that it was closed with")]
    corrected_month: Annotated[str, Column("Month", before="start")]
    currency: Annotated[str, Column("Currency")]


@dataclass(frozen=True, slots=True)
class ClosedMonth:
    """The report's own month where it was closed: its charges are those of then.

    `bytes` of all clients were closed, and the tables have `bytes_now`. What that makes of the
    amount, `amount_since`, is on the bill of `next_bill`; None = nothing. `former_account` names
    the FOCUS rows of a month that an earlier version closed, "" = they have today's names.
    """

    month: str
    closed_at: str
    sha256: str
    bytes: int
    bytes_now: int
    next_bill: str
    amount_since: Decimal | None
    closed_by: str = ""
    invoice_id: str = ""
    former_account: str = ""


@dataclass(frozen=True, slots=True)
class LabelFigures:
    """Members with one value of a label, in both directions; `value` "" = those without the label.

    Amounts of lines of no member are with those without the label.
    """

    label: Annotated[str, Column("Label")]
    value: Annotated[str, Column("Value", absent="(no {0.label})")]
    members: _Members
    fetch_bytes: _Fetched
    produce_bytes: _Produced
    bytes: _Bytes
    share: Annotated[Share | None, Column("Share", "Of all members' bytes")]
    change: _VolumeChange
    amount: _Amount
    tolerance: _Tolerance
    budget: Annotated[Money | None, Column("Budget", "For the period's length", absent="none")]
    budget_share: Annotated[Share | None, Column("Of budget")]


@dataclass(frozen=True, slots=True)
class UnusualDay:
    """A day of UTC unlike the same weekday before: `score` standard deviations from their mean."""

    day: Annotated[Day, Column("Day")]
    weekday: Annotated[str, Column("Weekday")]
    member: _Member
    tier: _Tier
    user: _User
    client_id: _ClientId
    bytes: _Bytes
    usual_bytes: Annotated[Volume, Column("Usual", "Mean of the same weekday of weeks before")]
    score: Annotated[Score, Column("Deviations", "Standard deviations from the mean")]
    weeks: Annotated[Count, Column("Weeks compared")]


@dataclass(frozen=True, slots=True)
class Total:
    """A direction over all members."""

    direction: _Direction
    bytes: _Bytes
    change: _VolumeChange
    amount: _Amount
    counted_bytes: Annotated[
        Volume,
        Column("Total at brokers", "The brokers' own byte counters: exact if they were scraped"),
    ]
    unattributed_bytes: _Unattributed
    unattributed_amount: _UnattributedAmount
    throttled_seconds: _Throttled
    deferred_bytes: _Deferred


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Billed and unattributed bytes of a direction, or of "both", against the brokers' count.

    `unattributed_charged` is the part of the bill for unattributed bytes, None = not charged.
    """

    direction: _Direction
    billed_bytes: Annotated[Volume, Column("Billed", "Bytes of all members")]
    unattributed_bytes: Annotated[Volume, Column("+ Unattributed")]
    counted_bytes: Annotated[Volume, Column("= Total at brokers", "The brokers' own byte counters")]
    difference_bytes: Annotated[
        Volume, Column("Difference", "Total at brokers less billed and unattributed")
    ]
    unattributed_amount: _UnattributedAmount
    unattributed_charged: Annotated[
        Money | None, Column("Of it on this bill", "As the rate card says", absent="not charged")
    ]


@dataclass(frozen=True, slots=True)
class TierTotal:
    """A tier over both directions."""

    tier: _Tier
    level: _Level
    members: _Members
    fetch_bytes: _Fetched
    produce_bytes: _Produced
    bytes: _Bytes
    share: Annotated[Share | None, Column("Share", "Of all members' bytes")]
    amount: _Amount
    tolerance: _Tolerance


@dataclass(frozen=True, slots=True)
class TierFigures:
    """A tier in one direction; `throttled_seconds` add up members and brokers."""

    tier: _Tier
    level: _Level
    direction: _Direction
    members: _Members
    bytes: _Bytes
    share: _DirectionShare
    amount: _Amount
    throttled_seconds: float
    deferred_bytes: int
    peak_rate: Annotated[Rate | None, Column("Highest peak", "Of any of its members on one broker")]
    highest_p95_rate: Annotated[
        Rate | None, Column("Highest p95", "Of any of its members on one broker")
    ]
    throttle_episodes: Annotated[Count | None, _EPISODES]
    seconds_contract: Annotated[Seconds | None, Column("At contract")]
    seconds_stepping: Annotated[Seconds | None, Column("Stepping")]
    seconds_throttled: Annotated[Seconds | None, _BELOW]
    seconds_relaxing: Annotated[Seconds | None, _RELAXING]


@dataclass(frozen=True, slots=True)
class MemberFigures:
    """A member in one direction, over all brokers: seconds add up, `coverage` is the rows' mean.

    Without a `coverage` it moved nothing, and pays for its contract alone.
    """

    member: _Member
    tier: _Tier
    level: _Level
    user: _User
    client_id: _ClientId
    direction: _Direction
    labels: Annotated[Labels, Column("Labels", before="direction")]
    brokers: Annotated[Count, Column("Brokers")]
    bytes: _Bytes
    share: _DirectionShare
    change: _VolumeChange
    amount: _Amount
    tolerance: _Tolerance
    throttled_seconds: _Throttled
    over_contract_seconds: Annotated[
        BrokerHours,
        Column("Over contract", "Hours above its contract on a broker, added up over brokers"),
    ]
    over_contract_share: Annotated[
        Share | None,
        Column("Of the time", "Above its contract, of the time on all brokers where it was seen"),
    ]
    deferred_bytes: _Deferred
    coverage: Annotated[Share | None, Column("Coverage", "Mean part of the time that has samples")]


@dataclass(frozen=True, slots=True)
class ContractUse:
    """A member's highest rates on a broker against its contract there."""

    member: _Member
    tier: _Tier
    user: _User
    client_id: _ClientId
    direction: _Direction
    contract: Annotated[WholeRate | None, _CONTRACT]
    p95_rate: Annotated[
        Rate | None, Column("p95", "Of 5-minute rates, on the broker where it is highest")
    ]
    p95_share: Annotated[Share | None, Column("p95 of contract")]
    peak_rate: Annotated[
        Rate,
        Column(
            "Peak", "Highest gauge reading on one broker, or its busiest five minutes if busier"
        ),
    ]
    peak_share: Annotated[Share | None, Column("Peak of contract")]
    p95_is_bound: Annotated[
        Flag, Column("p95 is a bound", "The 5-minute rows are gone: the true p95 is this or less")
    ]


@dataclass(frozen=True, slots=True)
class Talker:
    """A member that moves most, both directions together."""

    rank: Annotated[Count, Column("Rank")]
    member: _Member
    tier: _Tier
    user: _User
    client_id: _ClientId
    fetch_bytes: _Fetched
    produce_bytes: _Produced
    bytes: Annotated[Volume, Column("Together")]
    share: Annotated[Share, Column("Share")]
    running_share: Annotated[Share, Column("With those above")]


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """A broker's NIC in one direction; `limit` is the last one known."""

    broker: _Broker
    direction: _Direction
    nic_bytes: Annotated[Volume, Column("NIC", "All bytes of the network interface: exact")]
    client_bytes: Annotated[Volume, Column("Clients", "The broker's own count: exact")]
    replication_bytes: Annotated[Volume, Column("Replication", "The broker's own count: exact")]
    unattributed_bytes: _Unattributed
    limit: Annotated[WholeRate | None, Column("Limit", absent="none")]
    mean_rate: _Mean
    mean_share: Annotated[Share | None, Column("Mean of limit")]
    busiest_start: Annotated[Moment, Column("Busiest at")]
    busiest_seconds: Annotated[WholeSeconds, Column("Window", on_page=False)]
    busiest_rate: Annotated[
        Rate, Column("Busiest", "Mean of its busiest window", before="busiest_start")
    ]
    busiest_share: Annotated[Share | None, replace(_BUSIEST_SHARE, before="busiest_start")]
    headroom_rate: Annotated[
        Rate | None,
        Column(
            "Headroom", "Limit less the busiest window: negative if it was over", absent="no limit"
        ),
    ]
    over_limit_seconds: Annotated[
        Seconds, Column("Over limit", "From the rates between single samples")
    ]


@dataclass(frozen=True, slots=True)
class TrafficPoint:
    """The bytes of a tier's members from `start` on, for `seconds`."""

    start: _Start
    seconds: _Length
    tier: _Tier
    direction: _Direction
    bytes: Annotated[Volume, Column("Volume")]
    rate: _Mean


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """The load of a broker's NIC from `start` on, for `seconds`: mean, and busiest window in it."""

    start: _Start
    seconds: _Length
    broker: _Broker
    direction: _Direction
    nic_bytes: Annotated[Volume, Column("NIC")]
    rate: _Mean
    share: Annotated[Share | None, Column("Of limit")]
    busiest_rate: Annotated[Rate, Column("Busiest")]
    busiest_share: Annotated[Share | None, _BUSIEST_SHARE]


@dataclass(frozen=True, slots=True)
class EpisodeSpan:
    """A quota below its contract; `begin` and `end` are the period's where the trail has none."""

    episode: Annotated[Count, Column("Episode")]
    entity: Annotated[str, Column("Client")]
    member: Annotated[str, Column("Member", before="entity")]
    tier: _Tier
    level: _Level
    begin: _Start
    end: _End
    quota: Annotated[WholeRate, Column("Quota")]
    contract: Annotated[WholeRate, _CONTRACT]
    fraction: Annotated[Share, Column("Of contract")]


@dataclass(frozen=True, slots=True)
class Episode:
    """A time in which the trail has at least one rate of a direction below its contract.

    `open_begin`, `open_end`: it had begun before the period, or goes on after it. Mutes in seconds,
    None = unknown.
    """

    number: Annotated[Count, Column("Episode")]
    direction: _Direction
    begin: _Start
    end: _End
    seconds: Annotated[Seconds, Column("Lasted")]
    open_begin: Annotated[Flag, Column("Began earlier")]
    open_end: Annotated[Flag, Column("Goes on")]
    levels: Annotated[str, Column("Levels")]
    members: _Members
    cuts: Annotated[Count, Column("Cuts")]
    raises: Annotated[Count, Column("Raises")]
    lowest_fraction: Annotated[Share, Column("Lowest quota", "Of the contract")]
    predicted_mute_seconds: Annotated[Seconds | None, Column("Predicted mute")]
    observed_mute_seconds: Annotated[Seconds | None, Column("Observed mute")]
    brokers: Annotated[str, Column("Brokers over")]
    most_over_rate: Annotated[Rate | None, Column("Most over by")]
    spans: tuple[EpisodeSpan, ...]


@dataclass(frozen=True, slots=True)
class ThrottledWindow:
    """A tier's time below its contract and begun episodes, from `start` on for `seconds`."""

    start: _Start
    seconds: _Length
    tier: _Tier
    level: _Level
    direction: _Direction
    throttle_episodes: Annotated[Count, _EPISODES]
    seconds_throttled: Annotated[Seconds, _BELOW]
    seconds_relaxing: Annotated[Seconds, _RELAXING]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A recommended contract in the contract's own `form`, or why there is none."""

    member: _Member
    tier: _Tier
    user: _User
    client_id: _ClientId
    direction: _Direction
    form: Annotated[str, Column("Form")]
    contract: Annotated[WholeRate | None, Column("Contract", absent="unlimited")]
    recommended: Annotated[WholeRate | None, Column("Recommended", absent="none")]
    change: Annotated[Change | None, Column("Change")]
    applied: Annotated[
        WholeRate | None,
        Column("Applied", "In force instead of the declared contract", absent="no"),
    ]
    p99_rate: Annotated[
        Rate | None, Column("p99", "Of 5-minute rates, on the broker where it is highest")
    ]
    reason: Annotated[str, Column("Reason")]
    message: Annotated[str, Column("Why")]


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far gauges were scaled to add up to a broker's own count."""

    broker: _Broker
    direction: _Direction
    windows: Annotated[Count, Column("Windows")]
    unscaled_windows: Annotated[
        Count,
        Column(
            "Without a factor", "No counter was scraped, it did not grow, or no gauge had a byte"
        ),
    ]
    bounded_windows: Annotated[
        Count,
        Column(
            "Outside bounds",
            "The count is too far from the gauges: some client has none, or counts twice",
        ),
    ]
    lowest_factor: Annotated[Factor | None, Column("Lowest")]
    median_factor: Annotated[Factor | None, Column("Median")]
    highest_factor: Annotated[Factor | None, Column("Highest")]
    unattributed_bytes: _Unattributed
    unattributed_share: Annotated[Share | None, Column("Of its count")]


@dataclass(frozen=True, slots=True)
class DoubtfulMember:
    """A member whose bytes are less certain: never scaled, with samples missing, or on a broker
    whose gauges and count differ by too much.

    Coverage is a fraction of the time and of what was counted.
    """

    member: _Member
    tier: _Tier
    direction: _Direction
    bytes: _Bytes
    lowest_coverage: Annotated[Share, Column("Lowest coverage")]
    never_scaled: Annotated[Flag, Column("Never scaled")]
    windows_outside: Annotated[
        Count, Column("Windows outside bounds", "Of 5 minutes, on any broker")
    ]
    lowest_factor: Annotated[Factor | None, Column("Lowest factor")]
    highest_factor: Annotated[Factor | None, Column("Highest factor")]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to reproduce one of the numbers by hand."""

    what: Annotated[str, Column("Number")]
    value: Annotated[str, Column("Value")]
    how: Annotated[str, Column("How")]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the tables came from."""

    store: str
    schema_version: int
    transports: str
    runs: str


@dataclass(frozen=True, slots=True)
class ReportFigures:
    """One report of the tables of a policy, whose cluster has `kafka_cluster_id`, "" = unknown.

    Unknown are episodes without `trail_given`, tiers' states without `states_known`.
    `five_minutes` False: calibration is unknown, and every p95 is a bound. `made_by` is Tidegate's
    version. In `tierless_windows` the rollup had no policy: tiers there are those of the files that
    were given to the report. `days_compared`: the tables have days with enough weeks before them.
    `amount_due` is `total_amount` and `corrections_amount`, which is in no other amount;
    corrections in another currency are in neither.
    """

    policy: str
    kafka_cluster_id: str
    made_at: str
    made_by: str
    period: Period
    currency: str
    prices: tuple[Price, ...]
    charges: tuple[BillLine, ...]
    closed: ClosedMonth | None
    corrections: tuple[Correction, ...]
    corrections_amount: Decimal | None
    amount_due: Decimal | None
    total_bytes: int
    total_amount: Decimal | None
    totals: tuple[Total, ...]
    reconciliation: tuple[Reconciliation, ...]
    tier_totals: tuple[TierTotal, ...]
    tiers: tuple[TierFigures, ...]
    members: tuple[MemberFigures, ...]
    labels: tuple[LabelFigures, ...]
    unusual_days: tuple[UnusualDay, ...]
    days_compared: bool
    contract_use: tuple[ContractUse, ...]
    talkers: tuple[Talker, ...]
    brokers: tuple[BrokerFigures, ...]
    traffic: tuple[TrafficPoint, ...]
    load: tuple[LoadPoint, ...]
    trail_given: bool
    episodes: tuple[Episode, ...]
    states_known: bool
    throttled_windows: tuple[ThrottledWindow, ...]
    recommendations: tuple[Recommendation, ...]
    five_minutes: bool
    tierless_windows: int
    least_factor: float
    most_factor: float
    calibration: tuple[Calibration, ...]
    doubtful: tuple[DoubtfulMember, ...]
    recipes: tuple[Recipe, ...]
    origin: Origin
