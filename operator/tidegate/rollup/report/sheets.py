"""The tables of a report: which figures are in which column, and how a figure is written.

The page's tables and the CSV files are made from these declarations, so they cannot disagree.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum, auto
from typing import Any

from tidegate.rollup.report.figures import ReportFigures
from tidegate.rollup.report.rate_card import GIB

UNKNOWN = "–"
ROWS_SHOWN = 150

_KIND, _VERSION = "TidegateUsageReport", 1
_SHORTENED = frozenset(
    {
        *("members", "charges", "corrections", "labels", "unusualDays", "contractUse", "brokers"),
        *("recommendations", "calibration", "doubtful"),
    }
)


# Figures as text: volumes in GiB, the unit of the price, rates in MB/s, as Kafka users write them.
# The text is rounded; `exact_text` is not.


class Kind(Enum):
    """The quantity of a figure, which decides how it is written."""

    TEXT = auto()
    COUNT = auto()
    VOLUME = auto()
    RATE = auto()
    SECONDS = auto()
    BROKER_HOURS = auto()
    SHARE = auto()
    CHANGE = auto()
    FACTOR = auto()
    MONEY = auto()
    MOMENT = auto()
    FLAG = auto()
    LABELS = auto()
    PRICE = auto()
    SCORE = auto()
    DAY = auto()


UNITS: Mapping[Kind, str] = {
    Kind.VOLUME: "GiB",
    Kind.RATE: "MB/s",
    Kind.BROKER_HOURS: "broker-hours",
}
"""Units that are in a column's title, so that its cells are numbers alone."""


def cell_text(kind: Kind, value: Any) -> str:
    """A table's cell. None is a dash; a volume or rate is without its unit."""
    return UNKNOWN if value is None else _FORMATS[kind](value)


def text_with_unit(kind: Kind, value: Any) -> str:
    """The same for a sentence or a tooltip."""
    return UNKNOWN if value is None else f"{cell_text(kind, value)} {UNITS.get(kind, '')}".rstrip()


def exact_text(kind: Kind, value: Any) -> str:
    """All digits with their unit, for the tooltip of a cell; "" if the cell has them already."""
    return "" if value is None else _EXACT_FORMATS.get(kind, lambda _: "")(value)


def readable(number: float) -> str:
    """About three digits, no powers of ten: `12,345`, `123.4`, `1.23`, `0.012`.

    `<0.001` is less, but not zero.
    """
    size = abs(number)
    if size == 0:
        return "0"
    if size < 0.0005:
        return "<0.001"
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return f"{number:,.{decimals}f}".replace("-", "−")


def duration(seconds: float) -> str:
    """`0`, `42 s`, `12 min`, `4 h 48 min`, `3 d 4 h`."""
    if seconds < 120:
        return "0" if seconds == 0 else f"{seconds:.0f} s" if seconds >= 1 else "<1 s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 72 * 60:
        (count, rest), unit, smaller = divmod(minutes, 60), "h", "min"
    else:
        (count, rest), unit, smaller = divmod(round(minutes / 60), 24), "d", "h"
    return f"{count} {unit} {rest} {smaller}" if rest else f"{count} {unit}"


def clock(text: str) -> str:
    """`2026-11-20 03:20` of an ISO time; with seconds only if there are some."""
    at = datetime.fromisoformat(text)
    return f"{at:%Y-%m-%d %H:%M:%S}" if at.second or at.microsecond else f"{at:%Y-%m-%d %H:%M}"


def labels_words(labels: Mapping[str, str]) -> str:
    """`costCenter=4711, team=shop`."""
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))


def _percent(share: float) -> str:
    return (
        "0 %"
        if share == 0
        else "<0.1 %"
        if 0 < share < 0.0005
        else f"{share * 100:,.1f} %".replace("-", "−")
    )


def _digits(unit: str) -> Callable[[float | int | Decimal], str]:
    return lambda value: f"{value:,} {unit}" if isinstance(value, int) else f"{value:,.3f} {unit}"


_FORMATS: Mapping[Kind, Callable[[Any], str]] = {
    Kind.TEXT: str,
    Kind.COUNT: "{:,}".format,
    Kind.VOLUME: lambda count: readable(count / GIB),
    Kind.RATE: lambda rate: readable(rate / 1e6),
    Kind.SECONDS: duration,
    Kind.BROKER_HOURS: lambda seconds: readable(seconds / 3600),
    Kind.SHARE: _percent,
    Kind.CHANGE: lambda change: f"{change * 100:+.1f} %".replace("-", "−"),
    Kind.FACTOR: "{:.3f}".format,
    Kind.MONEY: lambda amount: f"{amount:,.2f}".replace("-", "−"),
    Kind.MOMENT: clock,
    Kind.FLAG: lambda flag: "yes" if flag else "no",
    Kind.LABELS: labels_words,
    Kind.PRICE: lambda price: format(price, "f"),
    Kind.SCORE: lambda score: f"{score:+.1f}".replace("-", "−"),
    Kind.DAY: lambda text: f"{datetime.fromisoformat(text):%Y-%m-%d}",
}
_EXACT_FORMATS: Mapping[Kind, Callable[[Any], str]] = {
    Kind.VOLUME: _digits("bytes"),
    Kind.RATE: _digits("bytes/s"),
    Kind.SECONDS: _digits("s"),
    Kind.BROKER_HOURS: _digits("s"),
    Kind.SHARE: "{:.6f}".format,
    Kind.CHANGE: "{:.6f}".format,
    Kind.FACTOR: "{:.6f}".format,
    Kind.MOMENT: str,
}


# Tables


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the rows and its title.

    `absent` is shown for None; `meaning` is the title's tooltip. `on_page` False: only in the CSV
    file and the JSON.
    """

    name: str
    title: str
    kind: Kind = Kind.TEXT
    absent: str = UNKNOWN
    meaning: str = ""
    on_page: bool = True

    @property
    def title_with_unit(self) -> str:
        unit = UNITS.get(self.kind)
        return self.title if unit is None else f"{self.title}, {unit}"

    @property
    def is_left(self) -> bool:
        """Whether its cells are aligned to the left, as text is."""
        return self.kind in (Kind.TEXT, Kind.FLAG, Kind.MOMENT, Kind.LABELS, Kind.DAY)

    @property
    def is_wrapped(self) -> bool:
        """Whether its cells may have several lines."""
        return self.kind is Kind.LABELS

    def text(self, row: Any) -> str:
        value = getattr(row, self.name)
        return self.absent if value is None or value in ("", {}) else cell_text(self.kind, value)

    def exact(self, row: Any) -> str:
        return exact_text(self.kind, getattr(row, self.name))

    def pointer(self, row_pointer: str) -> str:
        """The JSON pointer of the cell's figure."""
        return f"{row_pointer}/{camel(self.name)}"


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows, each with its JSON pointer in the JSON file."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[tuple[str, Any]]

    @property
    def columns_on_page(self) -> Sequence[Column]:
        """Those that are neither empty nor repeat the members' names; the CSV file has all."""
        return [
            column for column in self.columns if column.on_page and self._is_informative(column)
        ]

    def _is_informative(self, column: Column) -> bool:
        cells = [(getattr(row, column.name), getattr(row, "member", None)) for _, row in self.rows]
        is_empty = all(value is None or value in ("", {}) or value is False for value, _ in cells)
        repeats_names = column.name != "member" and all(value == name for value, name in cells)
        return not is_empty and not repeats_names


_BROKER = Column("broker", "Broker", Kind.COUNT)
_MEMBER = Column("member", "Member")
_TIER = Column("tier", "Tier", absent="no tier")
_LEVEL = Column("level", "Level")
_CLIENT = (Column("user", "User"), Column("client_id", "Client id"))
_DIRECTION = Column("direction", "Direction")
_BYTES = Column(
    "bytes",
    "Volume",
    Kind.VOLUME,
    meaning="Bytes moved; estimates that add up to the brokers' own counts",
)
_SHARE = Column("share", "Share", Kind.SHARE, meaning="Of all members' bytes in this direction")
_AMOUNT = Column(
    "amount", "Price", Kind.MONEY, meaning="Rounded to hundredths; totals are sums of these"
)
_CHANGE = Column(
    "change",
    "Change",
    Kind.CHANGE,
    meaning="Of the volume, against the period before; a dash where that is not known",
)
_LABELS = Column("labels", "Labels", Kind.LABELS)
_THROTTLED = Column(
    "throttled_seconds",
    "Throttled",
    Kind.BROKER_HOURS,
    meaning="Hours in which a broker delayed it, by its own gauge, added up over brokers: four "
    "hours on six brokers are at most 24",
)
_DEFERRED = Column(
    "deferred_bytes",
    "Deferred",
    Kind.VOLUME,
    meaning="Estimated bytes delayed while it was throttled; Kafka drops none of them",
)
_UNATTRIBUTED = Column(
    "unattributed_bytes",
    "Unattributed",
    Kind.VOLUME,
    meaning="Counted by brokers, explained by no user's gauge; not billed to any member",
)
_CONTRACT = Column("contract", "Contract", Kind.RATE, absent="unlimited", meaning="On each broker")
_START = Column("start", "From", Kind.MOMENT)
_LENGTH = Column("seconds", "Length", Kind.SECONDS)
_BEGIN, _END = Column("start", "From", Kind.MOMENT), Column("end", "Until", Kind.MOMENT)
_BEGUN = Column("begin", "From", Kind.MOMENT)
_EPISODES = Column("throttle_episodes", "Episodes", Kind.COUNT, meaning="Episodes that began in it")
_BELOW = Column("seconds_throttled", "Below contract", Kind.SECONDS)
_RELAXING = Column(
    "seconds_relaxing", "Relaxing", Kind.SECONDS, meaning="On the way back to the contracted rate"
)
_MEAN = Column("rate", "Mean", Kind.RATE)
_BUSIEST_SHARE = Column("busiest_share", "Busiest of limit", Kind.SHARE)

COLUMNS: Mapping[str, Sequence[Column]] = {
    "totals": (
        _DIRECTION,
        _BYTES,
        _CHANGE,
        _AMOUNT,
        Column(
            "counted_bytes",
            "Counted by brokers",
            Kind.VOLUME,
            meaning="The brokers' own byte counters: exact if they were scraped",
        ),
        _UNATTRIBUTED,
        Column(
            "unattributed_amount",
            "Price of it",
            Kind.MONEY,
            meaning="Unattributed, and in no other amount",
        ),
        _THROTTLED,
        _DEFERRED,
    ),
    "tiers": (
        *(
            _TIER,
            _LEVEL,
            _DIRECTION,
            Column("members", "Members", Kind.COUNT),
            _BYTES,
            _SHARE,
            _AMOUNT,
        ),
        Column(
            "peak_rate", "Highest peak", Kind.RATE, meaning="Of any of its members on one broker"
        ),
        Column(
            "highest_p95_rate",
            "Highest p95",
            Kind.RATE,
            meaning="Of any of its members on one broker",
        ),
        _EPISODES,
        Column("seconds_contract", "At contract", Kind.SECONDS),
        Column("seconds_stepping", "Stepping", Kind.SECONDS),
        *(_BELOW, _RELAXING),
    ),
    "members": (
        *(
            _MEMBER,
            _TIER,
            _LEVEL,
            *_CLIENT,
            _LABELS,
            _DIRECTION,
            Column("brokers", "Brokers", Kind.COUNT),
            _BYTES,
            _SHARE,
            _CHANGE,
            _AMOUNT,
        ),
        _THROTTLED,
        Column(
            "over_contract_seconds",
            "Over contract",
            Kind.BROKER_HOURS,
            meaning="Hours above its contract on a broker, added up over brokers",
        ),
        Column(
            "over_contract_share",
            "Of the time",
            Kind.SHARE,
            meaning="Above its contract, of the time on all brokers where it was seen",
        ),
        _DEFERRED,
        Column(
            "coverage", "Coverage", Kind.SHARE, meaning="Mean part of the time that has samples"
        ),
    ),
    "prices": (
        *(_BEGIN, _END, Column("what", "What")),
        Column("amount", "Price", Kind.PRICE, absent="not charged"),
        Column("unit", "For a"),
    ),
    "labels": (
        Column("label", "Label"),
        Column("value", "Value", absent="without it"),
        Column("members", "Members", Kind.COUNT),
        Column("fetch_bytes", "Fetched", Kind.VOLUME),
        Column("produce_bytes", "Produced", Kind.VOLUME),
        _BYTES,
        Column("share", "Share", Kind.SHARE, meaning="Of all members' bytes"),
        *(_CHANGE, _AMOUNT),
        Column("budget", "Budget", Kind.MONEY, absent="none", meaning="For the period's length"),
        Column("budget_share", "Of budget", Kind.SHARE),
    ),
    "unusual_days": (
        *(Column("day", "Day", Kind.DAY), Column("weekday", "Weekday"), _MEMBER, _TIER, *_CLIENT),
        _BYTES,
        Column(
            "usual_bytes", "Usual", Kind.VOLUME, meaning="Mean of the same weekday of weeks before"
        ),
        Column("score", "Deviations", Kind.SCORE, meaning="Standard deviations from the mean"),
        Column("weeks", "Weeks compared", Kind.COUNT),
    ),
    "charges": (
        *(_BEGIN, _END, Column("kind", "Charged for"), _MEMBER, _TIER, _LEVEL, *_CLIENT, _LABELS),
        *(_DIRECTION, _BYTES),
        Column("per_gib", "Price of a GiB", Kind.PRICE, absent="share of a cost"),
        _AMOUNT,
    ),
    "corrections": (
        Column("corrected_month", "Month"),
        _BEGIN,
        Column("end", "Until", Kind.MOMENT, on_page=False),
        *(Column("kind", "Charged for"), _MEMBER, _TIER),
        Column("level", "Level", on_page=False),
        *(*_CLIENT, _LABELS, _DIRECTION),
        Column("bytes", "Difference", Kind.VOLUME, meaning="To what was billed until now"),
        Column("per_gib", "Price of a GiB", Kind.PRICE, absent="share of a cost"),
        Column("amount", "Amount", Kind.MONEY, meaning="At the rates that it was closed with"),
        Column("currency", "Currency"),
    ),
    "contract_use": (
        *(_MEMBER, _TIER, *_CLIENT, _DIRECTION, _CONTRACT),
        Column(
            "p95_rate",
            "p95",
            Kind.RATE,
            meaning="Of 5-minute rates, on the broker where it is highest",
        ),
        Column("p95_share", "p95 of contract", Kind.SHARE),
        Column(
            "peak_rate",
            "Peak",
            Kind.RATE,
            meaning="Highest gauge reading on one broker, or its busiest five minutes if busier",
        ),
        Column("peak_share", "Peak of contract", Kind.SHARE),
        Column(
            "p95_is_bound",
            "p95 is a bound",
            Kind.FLAG,
            meaning="The 5-minute rows are gone: the true p95 is this or less",
        ),
    ),
    "talkers": (
        *(Column("rank", "Rank", Kind.COUNT), _MEMBER, _TIER, *_CLIENT),
        Column("fetch_bytes", "Fetched", Kind.VOLUME),
        Column("produce_bytes", "Produced", Kind.VOLUME),
        Column("bytes", "Together", Kind.VOLUME),
        Column("share", "Share", Kind.SHARE),
        Column("running_share", "With those above", Kind.SHARE),
    ),
    "brokers": (
        *(_BROKER, _DIRECTION),
        Column(
            "nic_bytes", "NIC", Kind.VOLUME, meaning="All bytes of the network interface: exact"
        ),
        Column("client_bytes", "Clients", Kind.VOLUME, meaning="The broker's own count: exact"),
        Column(
            "replication_bytes", "Replication", Kind.VOLUME, meaning="The broker's own count: exact"
        ),
        _UNATTRIBUTED,
        Column("limit", "Limit", Kind.RATE, absent="none"),
        Column("mean_rate", "Mean", Kind.RATE),
        Column("mean_share", "Mean of limit", Kind.SHARE),
        Column("busiest_rate", "Busiest", Kind.RATE, meaning="Mean of its busiest window"),
        _BUSIEST_SHARE,
        Column("busiest_start", "Busiest at", Kind.MOMENT),
        Column("busiest_seconds", "Window", Kind.SECONDS, on_page=False),
        Column(
            "headroom_rate",
            "Headroom",
            Kind.RATE,
            absent="no limit",
            meaning="Limit less the busiest window: negative if it was over",
        ),
        Column(
            "over_limit_seconds",
            "Over limit",
            Kind.SECONDS,
            meaning="From the rates between single samples",
        ),
    ),
    "traffic": (_START, _LENGTH, _TIER, _DIRECTION, Column("bytes", "Volume", Kind.VOLUME), _MEAN),
    "load": (
        *(_START, _LENGTH, _BROKER, _DIRECTION, Column("nic_bytes", "NIC", Kind.VOLUME), _MEAN),
        Column("share", "Of limit", Kind.SHARE),
        Column("busiest_rate", "Busiest", Kind.RATE),
        _BUSIEST_SHARE,
    ),
    "episodes": (
        *(
            Column("number", "Episode", Kind.COUNT),
            _DIRECTION,
            _BEGUN,
            _END,
            Column("seconds", "Lasted", Kind.SECONDS),
        ),
        Column("open_begin", "Began earlier", Kind.FLAG),
        Column("open_end", "Goes on", Kind.FLAG),
        *(Column("levels", "Levels"), Column("members", "Members", Kind.COUNT)),
        *(Column("cuts", "Cuts", Kind.COUNT), Column("raises", "Raises", Kind.COUNT)),
        Column("lowest_fraction", "Lowest quota", Kind.SHARE, meaning="Of the contract"),
        Column("predicted_mute_seconds", "Predicted mute", Kind.SECONDS),
        Column("observed_mute_seconds", "Observed mute", Kind.SECONDS),
        Column("brokers", "Brokers over"),
        Column("most_over_rate", "Most over by", Kind.RATE),
    ),
    "throttled_windows": (_START, _LENGTH, _TIER, _LEVEL, _DIRECTION, _EPISODES, _BELOW, _RELAXING),
    "recommendations": (
        *(
            _MEMBER,
            _TIER,
            *_CLIENT,
            _DIRECTION,
            Column("form", "Form"),
            Column("contract", "Contract", Kind.RATE, absent="unlimited"),
        ),
        *(
            Column("recommended", "Recommended", Kind.RATE, absent="none"),
            Column("change", "Change", Kind.CHANGE),
        ),
        Column(
            "applied",
            "Applied",
            Kind.RATE,
            absent="no",
            meaning="In force instead of the declared contract",
        ),
        Column(
            "p99_rate",
            "p99",
            Kind.RATE,
            meaning="Of 5-minute rates, on the broker where it is highest",
        ),
        *(Column("reason", "Reason"), Column("message", "Why")),
    ),
    "calibration": (
        *(_BROKER, _DIRECTION, Column("windows", "Windows", Kind.COUNT)),
        Column(
            "unscaled_windows",
            "Without a factor",
            Kind.COUNT,
            meaning="No counter was scraped, it did not grow, or no gauge had a byte",
        ),
        Column(
            "bounded_windows",
            "Outside bounds",
            Kind.COUNT,
            meaning="The count is too far from the gauges: some client has none, or counts twice",
        ),
        Column("lowest_factor", "Lowest", Kind.FACTOR),
        Column("median_factor", "Median", Kind.FACTOR),
        Column("highest_factor", "Highest", Kind.FACTOR),
        _UNATTRIBUTED,
        Column("unattributed_share", "Of its count", Kind.SHARE),
    ),
    "doubtful": (
        *(
            _MEMBER,
            _TIER,
            _DIRECTION,
            _BYTES,
            Column("lowest_coverage", "Lowest coverage", Kind.SHARE),
        ),
        Column("never_scaled", "Never scaled", Kind.FLAG),
        Column(
            "windows_outside",
            "Windows outside bounds",
            Kind.COUNT,
            meaning="Of 5 minutes, on any broker",
        ),
        Column("lowest_factor", "Lowest factor", Kind.FACTOR),
        Column("highest_factor", "Highest factor", Kind.FACTOR),
    ),
    "recipes": (Column("what", "Number"), Column("value", "Value"), Column("how", "How")),
    "episode_spans": (
        *(
            Column("episode", "Episode", Kind.COUNT),
            _MEMBER,
            Column("entity", "Client"),
            _TIER,
            _LEVEL,
        ),
        *(
            _BEGUN,
            _END,
            Column("quota", "Quota", Kind.RATE),
            _CONTRACT,
            Column("fraction", "Of contract", Kind.SHARE),
        ),
    ),
}


def sheets_of(figures: ReportFigures) -> dict[str, Sheet]:
    """Every table by name, in the order of the page, those without rows too."""
    return {name: Sheet(name, columns, _rows(figures, name)) for name, columns in COLUMNS.items()}


def _rows(figures: ReportFigures, name: str) -> Sequence[tuple[str, Any]]:
    if name == "episode_spans":
        episodes = enumerate(figures.episodes)
        return [
            (f"/episodes/{place}/spans/{number}", span)
            for place, one in episodes
            for number, span in enumerate(one.spans)
        ]
    return [(f"/{camel(name)}/{place}", row) for place, row in enumerate(getattr(figures, name))]


# JSON


def document_of(figures: ReportFigures) -> dict[str, Any]:
    """The figures as plain data: camelCase names, and money as text, so that no digit is lost.

    `data-figure` of every number on the page is a JSON pointer into it.
    """
    return {"kind": _KIND, "version": _VERSION, **plain(figures)}


def json_text(figures: ReportFigures) -> str:
    """The JSON file. Raises ValueError for an infinity or NaN, which would be our own error."""
    return json.dumps(document_of(figures), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def embedded_json(figures: ReportFigures) -> str:
    """The JSON for a `<script>` element, which no text in it can end.

    Lists that the page shortens are as short here.
    """
    document = document_of(figures)
    shown = {
        name: value[:ROWS_SHOWN] if name in _SHORTENED else value
        for name, value in document.items()
    }
    text = json.dumps(shown, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def camel(name: str) -> str:
    """`peak_rate` is `peakRate`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def plain(value: Any) -> Any:
    """A figure as JSON and CSV have it: exact amounts as text, fractions to a millionth."""
    if is_dataclass(value):
        return {camel(field.name): plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    return round(value, 6) if isinstance(value, float) else value
