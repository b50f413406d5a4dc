"""Which figures are shown in which table, under which titles: the page's tables and the CSV files are made of the same declarations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.rollup.report.document import camel
from tidegate.rollup.report.figures import ReportFigures
from tidegate.rollup.report.units import UNKNOWN, Kind


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the rows, and how it is worded. `absent` is what None means there; `meaning` is shown when one asks.

    `on_page` False: the CSV file and the JSON have it.
    """

    name: str
    title: str
    kind: Kind = Kind.TEXT
    absent: str = UNKNOWN
    meaning: str | None = None
    on_page: bool = True


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows, each with the JSON pointer of where it stands in the JSON file."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[tuple[str, Any]]


_MEMBER = (Column("member", "Member"), Column("tier", "Tier", absent="no tier"))
_CLIENT = (Column("user", "User"), Column("client_id", "Client id"))
_DIRECTION = Column("direction", "Direction")
_BYTES = Column("bytes", "Volume", Kind.VOLUME, meaning="Bytes moved; estimates that add up to the brokers' own counts")
_SHARE = Column("share", "Share", Kind.SHARE, meaning="Of all members' bytes in this direction")
_AMOUNT = Column("amount", "Price", Kind.MONEY, meaning="Rounded to hundredths; totals are sums of these")
_THROTTLED = Column(
    "throttled_seconds", "Throttled", Kind.SECONDS, meaning="Time in which brokers delayed it, by their own gauge; several brokers add up"
)
_DEFERRED = Column(
    "deferred_bytes", "Deferred", Kind.VOLUME, meaning="Estimate of what was held back while it was throttled; Kafka drops none of it"
)
_PEAK = Column("peak_rate", "Peak", Kind.RATE, meaning="Highest gauge reading on one broker")
_CONTRACT = Column("contract", "Contract", Kind.RATE, absent="unlimited", meaning="Promised on each broker")

TOTALS = (
    _DIRECTION,
    _BYTES,
    _AMOUNT,
    Column("counted_bytes", "Counted by brokers", Kind.VOLUME, meaning="The brokers' own byte counters: exact where they were told"),
    Column("unattributed_bytes", "Of nobody", Kind.VOLUME, meaning="Counted by brokers, explained by no user's gauge; billed to nobody"),
    _THROTTLED,
    _DEFERRED,
)
TIERS = (
    *(_MEMBER[1], Column("level", "Level"), _DIRECTION, Column("members", "Members", Kind.COUNT), _BYTES, _SHARE, _AMOUNT),
    Column("peak_rate", "Peak", Kind.RATE, meaning="Highest rate of the tier table in one window"),
    Column("highest_p95_rate", "Highest p95", Kind.RATE, meaning="The highest of the windows' p95: p95 of hours do not add up to one"),
    Column("throttle_episodes", "Episodes", Kind.COUNT),
    Column("seconds_contract", "At contract", Kind.SECONDS),
    Column("seconds_stepping", "Stepping", Kind.SECONDS),
    Column("seconds_throttled", "Below contract", Kind.SECONDS),
    Column("seconds_relaxing", "Relaxing", Kind.SECONDS),
)
MEMBERS = (
    *(*_MEMBER, Column("level", "Level"), *_CLIENT, _DIRECTION, Column("brokers", "Brokers", Kind.COUNT), _BYTES, _SHARE, _AMOUNT),
    _THROTTLED,
    Column("over_contract_seconds", "Over contract", Kind.SECONDS, meaning="Time above its contract; several brokers add up"),
    _DEFERRED,
    Column("coverage", "Coverage", Kind.SHARE, meaning="How much of the time there are samples for, in the mean"),
)
CONTRACT_USE = (
    *(*_MEMBER, *_CLIENT, _DIRECTION, _CONTRACT),
    Column("p95_rate", "p95", Kind.RATE, meaning="Of 5-minute rates, on the broker where it is highest"),
    Column("p95_share", "p95 of contract", Kind.SHARE),
    _PEAK,
    Column("peak_share", "Peak of contract", Kind.SHARE),
    Column("p95_is_bound", "p95 is a bound", Kind.FLAG, meaning="The 5-minute rows are gone: the true p95 is this or less"),
)
TALKERS = (
    Column("rank", "Rank", Kind.COUNT),
    *(*_MEMBER, *_CLIENT),
    Column("fetch_bytes", "Fetched", Kind.VOLUME),
    Column("produce_bytes", "Produced", Kind.VOLUME),
    Column("bytes", "Together", Kind.VOLUME),
    Column("share", "Share", Kind.SHARE),
    Column("running_share", "With those above", Kind.SHARE),
)
BROKERS = (
    *(Column("broker", "Broker", Kind.COUNT), _DIRECTION),
    Column("nic_bytes", "Card", Kind.VOLUME, meaning="All bytes of the network card: exact"),
    Column("client_bytes", "Clients", Kind.VOLUME, meaning="The broker's own count: exact"),
    Column("replication_bytes", "Replication", Kind.VOLUME, meaning="The broker's own count: exact"),
    Column("unattributed_bytes", "Of nobody", Kind.VOLUME),
    Column("limit", "Limit", Kind.RATE, absent="none"),
    Column("mean_rate", "Mean", Kind.RATE),
    Column("mean_share", "Mean of limit", Kind.SHARE),
    Column("busiest_rate", "Busiest", Kind.RATE, meaning="Mean of its busiest window"),
    Column("busiest_share", "Busiest of limit", Kind.SHARE),
    Column("busiest_start", "Busiest at", Kind.MOMENT),
    Column("busiest_seconds", "Window", Kind.SECONDS, on_page=False),
    Column("headroom_rate", "Headroom", Kind.RATE, absent="no limit", meaning="Limit less the busiest window: negative where it was over"),
    Column("over_limit_seconds", "Over limit", Kind.SECONDS, meaning="From the rates between single samples"),
)
EPISODES = (
    *(Column("number", "Episode", Kind.COUNT), _DIRECTION, Column("begin", "From", Kind.MOMENT), Column("end", "Until", Kind.MOMENT)),
    Column("seconds", "Lasted", Kind.SECONDS),
    Column("open_begin", "Began earlier", Kind.FLAG),
    Column("open_end", "Goes on", Kind.FLAG),
    *(Column("levels", "Levels"), Column("members", "Members", Kind.COUNT)),
    *(Column("cuts", "Cuts", Kind.COUNT), Column("raises", "Raises", Kind.COUNT)),
    Column("lowest_fraction", "Lowest quota", Kind.SHARE, meaning="Of the contract"),
    Column("predicted_mute_seconds", "Predicted mute", Kind.SECONDS),
    Column("observed_mute_seconds", "Observed mute", Kind.SECONDS),
    Column("brokers", "Brokers over"),
    Column("most_over_rate", "Most over by", Kind.RATE),
)
SPANS = (
    *(
        Column("episode", "Episode", Kind.COUNT),
        Column("member", "Member"),
        Column("entity", "Client"),
        _MEMBER[1],
        Column("level", "Level"),
    ),
    *(Column("begin", "From", Kind.MOMENT), Column("end", "Until", Kind.MOMENT), Column("quota", "Quota", Kind.RATE), _CONTRACT),
    Column("fraction", "Of contract", Kind.SHARE),
)
THROTTLED_WINDOWS = (
    *(Column("start", "From", Kind.MOMENT), Column("seconds", "Length", Kind.SECONDS), _MEMBER[1], Column("level", "Level"), _DIRECTION),
    Column("throttle_episodes", "Episodes", Kind.COUNT, meaning="That began in it"),
    Column("seconds_throttled", "Below contract", Kind.SECONDS),
    Column("seconds_relaxing", "Relaxing", Kind.SECONDS, meaning="On the way back to the contract"),
)
RECOMMENDATIONS = (
    *(*_MEMBER, *_CLIENT, _DIRECTION, Column("form", "Promised"), Column("contract", "Contract", Kind.RATE, absent="unlimited")),
    *(Column("recommended", "Recommended", Kind.RATE, absent="none"), Column("change", "Change", Kind.CHANGE)),
    Column("applied", "Applied", Kind.RATE, absent="no", meaning="What stands in the declared contract's place"),
    Column("p99_rate", "p99", Kind.RATE, meaning="Of 5-minute rates, on the broker where it is highest"),
    *(Column("reason", "Reason"), Column("message", "Why")),
)
CALIBRATION = (
    *(Column("broker", "Broker", Kind.COUNT), _DIRECTION, Column("windows", "Windows", Kind.COUNT)),
    Column("unscaled_windows", "Without a factor", Kind.COUNT, meaning="No counter was told, it stood still, or no gauge told of a byte"),
    Column("bounded_windows", "At a bound", Kind.COUNT, meaning="The factor is 0.5 or 2: something else is wrong there"),
    Column("lowest_factor", "Lowest", Kind.FACTOR),
    Column("median_factor", "Median", Kind.FACTOR),
    Column("highest_factor", "Highest", Kind.FACTOR),
    Column("unattributed_bytes", "Of nobody", Kind.VOLUME),
    Column("unattributed_share", "Of its count", Kind.SHARE),
)
DOUBTFUL = (
    *(*_MEMBER, _DIRECTION, _BYTES, Column("lowest_coverage", "Lowest coverage", Kind.SHARE)),
    Column("never_scaled", "Never scaled", Kind.FLAG),
)
RECIPES = (Column("what", "Number"), Column("value", "Value"), Column("how", "How"))
TRAFFIC = (
    *(Column("start", "From", Kind.MOMENT), Column("seconds", "Length", Kind.SECONDS), _MEMBER[1], _DIRECTION),
    *(Column("bytes", "Volume", Kind.VOLUME), Column("rate", "Mean", Kind.RATE)),
)
LOAD = (
    *(Column("start", "From", Kind.MOMENT), Column("seconds", "Length", Kind.SECONDS), Column("broker", "Broker", Kind.COUNT), _DIRECTION),
    *(Column("nic_bytes", "Card", Kind.VOLUME), Column("rate", "Mean", Kind.RATE), Column("share", "Of limit", Kind.SHARE)),
    *(Column("busiest_rate", "Busiest", Kind.RATE), Column("busiest_share", "Busiest of limit", Kind.SHARE)),
)

_COLUMNS = {
    "totals": TOTALS,
    "tiers": TIERS,
    "members": MEMBERS,
    "contract_use": CONTRACT_USE,
    "talkers": TALKERS,
    "brokers": BROKERS,
    "traffic": TRAFFIC,
    "load": LOAD,
    "episodes": EPISODES,
    "throttled_windows": THROTTLED_WINDOWS,
    "recommendations": RECOMMENDATIONS,
    "calibration": CALIBRATION,
    "doubtful": DOUBTFUL,
    "recipes": RECIPES,
}


def sheets_of(figures: ReportFigures) -> dict[str, Sheet]:
    """Every table by name, in the order of the page; one without rows is there too."""
    sheets = {name: Sheet(name, columns, _rows(figures, name)) for name, columns in _COLUMNS.items()}
    spans = [
        (f"/episodes/{place}/spans/{number}", span)
        for place, episode in enumerate(figures.episodes)
        for number, span in enumerate(episode.spans)
    ]
    return sheets | {"episode_spans": Sheet("episode_spans", SPANS, spans)}


def _rows(figures: ReportFigures, name: str) -> Sequence[tuple[str, Any]]:
    return [(f"/{camel(name)}/{place}", row) for place, row in enumerate(getattr(figures, name))]
