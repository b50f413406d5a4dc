"""Every number of a report. The page, the CSV files and the JSON show these and compute nothing.

Bytes are whole numbers, rates are bytes per second, times are UTC in ISO 8601, shares are fractions
of one, amounts of money are exact decimals. None means "unknown" or "does not apply", never zero. A
rate is on one broker, as contracts are: each broker applies a quota to its own traffic alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal


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

    `what` is a direction, a direction of a level, or what else has a price. `amount` None = it is
    not charged.
    """

    start: str
    end: str
    what: str
    amount: Decimal | None
    unit: str


@dataclass(frozen=True, slots=True)
class Charge:
    """A line of the bill: what was charged for [start, end), rounded to hundredths.

    `kind` is Usage, Unattributed or Replication; Unshared is a cost for which nobody had a share.
    A line of no member has "" in place of its names. `per_gib` None = a share of a cost.
    """

    start: str
    end: str
    kind: str
    member: str
    tier: str
    level: str
    user: str
    client_id: str
    labels: Mapping[str, str]
    direction: str
    bytes: int
    per_gib: Decimal | None
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Correction(Charge):
    """A line on this bill for a month that was closed: what it is more or less than was billed.

    `start` and `end` are of that month, `bytes` and `amount` are differences, in its `currency`.
    """

    corrected_month: str
    currency: str


@dataclass(frozen=True, slots=True)
class ClosedMonth:
    """The report's own month where it was closed: its charges are those of then.

    `bytes` of all clients were closed, and the tables have `bytes_now`. What that makes of the
    amount, `amount_since`, is on the bill of `next_bill`; None = nothing.
    """

    month: str
    closed_at: str
    sha256: str
    bytes: int
    bytes_now: int
    next_bill: str
    amount_since: Decimal | None


@dataclass(frozen=True, slots=True)
class LabelFigures:
    """Members with one value of a label, in both directions; `value` "" = those without the label.

    Amounts of lines of no member are with those without the label. `change` is against the period
    before, None where that is not known. `budget` is for the length of the period.
    """

    label: str
    value: str
    members: int
    fetch_bytes: int
    produce_bytes: int
    bytes: int
    share: float | None
    change: float | None
    amount: Decimal | None
    budget: Decimal | None
    budget_share: float | None


@dataclass(frozen=True, slots=True)
class UnusualDay:
    """A day of UTC unlike the same weekday before: `score` standard deviations from their mean."""

    day: str
    weekday: str
    member: str
    tier: str
    user: str
    client_id: str
    bytes: int
    usual_bytes: int
    score: float
    weeks: int


@dataclass(frozen=True, slots=True)
class Total:
    """A direction over all members.

    `counted_bytes` is the brokers' own count; no user's gauge explains `unattributed_bytes` of it.
    Their price is `unattributed_amount`, which is in no other amount.
    """

    direction: str
    bytes: int
    change: float | None
    amount: Decimal | None
    counted_bytes: int
    unattributed_bytes: int
    unattributed_amount: Decimal | None
    throttled_seconds: float
    deferred_bytes: int


@dataclass(frozen=True, slots=True)
class TierFigures:
    """A tier in one direction; `throttled_seconds` add up members and brokers.

    `peak_rate` and `highest_p95_rate` are the highest of any of its members on any broker.
    """

    tier: str
    level: str
    direction: str
    members: int
    bytes: int
    share: float | None
    amount: Decimal | None
    throttled_seconds: float
    deferred_bytes: int
    peak_rate: float | None
    highest_p95_rate: float | None
    throttle_episodes: int | None
    seconds_contract: float | None
    seconds_stepping: float | None
    seconds_throttled: float | None
    seconds_relaxing: float | None


@dataclass(frozen=True, slots=True)
class MemberFigures:
    """A member in one direction, over all brokers: seconds add up, `coverage` is the rows' mean.

    `over_contract_share` is of the published time on the brokers where it was seen. Without a
    `coverage` it moved nothing, and pays for its contract alone.
    """

    member: str
    tier: str
    level: str
    user: str
    client_id: str
    direction: str
    labels: Mapping[str, str]
    brokers: int
    bytes: int
    share: float | None
    change: float | None
    amount: Decimal | None
    throttled_seconds: float
    over_contract_seconds: float
    over_contract_share: float | None
    deferred_bytes: int
    coverage: float | None


@dataclass(frozen=True, slots=True)
class ContractUse:
    """A member's highest rates on a broker against its contract there (None = unlimited).

    `peak_rate` is the gauge's highest reading, or the busiest five minutes if these were busier.
    `p95_is_bound`: the 5-minute rows are gone, and the true p95 is this or less.
    """

    member: str
    tier: str
    user: str
    client_id: str
    direction: str
    contract: int | None
    p95_rate: float | None
    p95_share: float | None
    peak_rate: float
    peak_share: float | None
    p95_is_bound: bool


@dataclass(frozen=True, slots=True)
class Talker:
    """A member that moves most, both directions together."""

    rank: int
    member: str
    tier: str
    user: str
    client_id: str
    fetch_bytes: int
    produce_bytes: int
    bytes: int
    share: float
    running_share: float


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """A broker's NIC in one direction; `limit` is the last one known.

    The busiest window is one of `busiest_seconds`. `headroom_rate` is the limit less that window's
    rate: negative where it was over.
    """

    broker: int
    direction: str
    nic_bytes: int
    client_bytes: int
    replication_bytes: int
    unattributed_bytes: int
    limit: int | None
    mean_rate: float
    mean_share: float | None
    busiest_start: str
    busiest_seconds: int
    busiest_rate: float
    busiest_share: float | None
    headroom_rate: float | None
    over_limit_seconds: float


@dataclass(frozen=True, slots=True)
class TrafficPoint:
    """The bytes of a tier's members from `start` on, for `seconds`."""

    start: str
    seconds: float
    tier: str
    direction: str
    bytes: int
    rate: float


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """The load of a broker's NIC from `start` on, for `seconds`: mean, and busiest window in it."""

    start: str
    seconds: float
    broker: int
    direction: str
    nic_bytes: int
    rate: float
    share: float | None
    busiest_rate: float
    busiest_share: float | None


@dataclass(frozen=True, slots=True)
class EpisodeSpan:
    """A quota below its contract; `begin` and `end` are the period's where the trail has none."""

    episode: int
    entity: str
    member: str
    tier: str
    level: str
    begin: str
    end: str
    quota: int
    contract: int
    fraction: float


@dataclass(frozen=True, slots=True)
class Episode:
    """A time in which the trail has at least one rate of a direction below its contract.

    `open_begin`, `open_end`: it had begun before the period, or goes on after it. Mutes in seconds,
    None = unknown.
    """

    number: int
    direction: str
    begin: str
    end: str
    seconds: float
    open_begin: bool
    open_end: bool
    levels: str
    members: int
    cuts: int
    raises: int
    lowest_fraction: float
    predicted_mute_seconds: float | None
    observed_mute_seconds: float | None
    brokers: str
    most_over_rate: float | None
    spans: tuple[EpisodeSpan, ...]


@dataclass(frozen=True, slots=True)
class ThrottledWindow:
    """A tier's time below its contract and begun episodes, from `start` on for `seconds`."""

    start: str
    seconds: float
    tier: str
    level: str
    direction: str
    throttle_episodes: int
    seconds_throttled: float
    seconds_relaxing: float


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A recommended contract in the contract's own `form`, or why there is none.

    `applied` None: the declared contract is in force.
    """

    member: str
    tier: str
    user: str
    client_id: str
    direction: str
    form: str
    contract: int | None
    recommended: int | None
    change: float | None
    applied: int | None
    p99_rate: float | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far gauges were scaled to add up to a broker's own count.

    `bounded_windows` are outside of the bounds: there gauges and count measure different clients.
    """

    broker: int
    direction: str
    windows: int
    unscaled_windows: int
    bounded_windows: int
    lowest_factor: float | None
    median_factor: float | None
    highest_factor: float | None
    unattributed_bytes: int
    unattributed_share: float | None


@dataclass(frozen=True, slots=True)
class DoubtfulMember:
    """A member whose bytes are less certain: never scaled, with samples missing, or on a broker
    whose gauges and count differ by too much.

    Coverage is a fraction of the time and of what was counted. `windows_outside` are its windows of
    5 minutes, on any broker, whose factor is outside of the bounds.
    """

    member: str
    tier: str
    direction: str
    bytes: int
    lowest_coverage: float
    never_scaled: bool
    windows_outside: int
    lowest_factor: float | None
    highest_factor: float | None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to reproduce one of the numbers by hand."""

    what: str
    value: str
    how: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the tables came from."""

    store: str
    schema_version: int
    transports: str
    runs: str


@dataclass(frozen=True, slots=True)
class ReportFigures:
    """One report. Unknown are episodes without `trail_given`, tiers' states without `states_known`.

    `five_minutes` False: calibration is unknown, and every p95 is a bound. `made_by` is Tidegate's
    version. In `tierless_windows` the rollup had no policy: tiers there are those of the files that
    were given to the report. `days_compared`: the tables have days with enough weeks before them.
    `amount_due` is `total_amount` and `corrections_amount`, which is in no other amount;
    corrections in another currency are in neither.
    """

    policy: str
    made_at: str
    made_by: str
    period: Period
    currency: str
    prices: tuple[Price, ...]
    charges: tuple[Charge, ...]
    closed: ClosedMonth | None
    corrections: tuple[Correction, ...]
    corrections_amount: Decimal | None
    amount_due: Decimal | None
    total_bytes: int
    total_amount: Decimal | None
    totals: tuple[Total, ...]
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
