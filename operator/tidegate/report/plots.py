"""The plots of a usage report, drawn from its figures."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidegate.report.columns import Kind, clock, duration, readable, text_with_unit
from tidegate.report.figures import (
    BrokerFigures,
    ContractUse,
    Episode,
    EpisodeSpan,
    LoadPoint,
    MemberFigures,
    Period,
    ReportFigures,
    Talker,
    ThrottledWindow,
    TrafficPoint,
)
from tidegate.report.rate_card import GIB
from tidegate.report.svg import (
    WIDTH,
    Markup,
    Plot,
    Rows,
    Scale,
    bar,
    element,
    horizontal_axis,
    labelled,
    plot,
    round_ticks,
    seconds_of,
    stacked_bars,
    text,
    time_ticks,
    vertical_axis,
    vertical_line,
)
from tidegate_logic.words import rate_words

_DIRECTION_LEGEND = (("fetch", "fetch"), ("produce", "produce"))
_MEMBERS_DRAWN, _BULLETS_DRAWN, _EPISODES_DRAWN = 10, 24, 6
_HIGHEST_SHARE = 2.5  # of a limit; a larger share is drawn at the edge
_TIER_COLOURS = 7
_OTHER_TIERS = "all other tiers"
_LOAD_BOUNDS = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
_LEVELS = ("L0", "L1", "L2", "L3")
_NARROWEST = 3.0  # an episode of a minute in a month is still drawn this wide
_HOUR = 3600


def _percent(share: float | None) -> str:
    return text_with_unit(Kind.SHARE, share)


def _volume(count: int) -> str:
    return text_with_unit(Kind.VOLUME, count)


# Bars: members by volume, and by throttled time

_Bar = tuple[str, Sequence[tuple[str, float]], str]  # name, parts as (colour, length), tooltip


def talkers_plot(talkers: Sequence[Talker]) -> Plot:
    """The members that move most, a bar of both directions each."""
    bars = [
        (
            one.member,
            (("fetch", one.fetch_bytes / GIB), ("produce", one.produce_bytes / GIB)),
            f"{one.member}\nfetch: {_volume(one.fetch_bytes)}\nproduce: "
            f"{_volume(one.produce_bytes)}\n{_percent(one.share)} of everything",
        )
        for one in talkers
    ]
    return _bars_plot(
        "talkers", "Top talkers.", "Volume of the period by member, in GiB.", bars, "GiB"
    )


def throttled_members_plot(members: Sequence[MemberFigures]) -> Plot | None:
    """The members that brokers delayed for longest; None if no member was delayed."""
    held = sorted(
        (one for one in members if one.throttled_seconds > 0),
        key=lambda one: -one.throttled_seconds,
    )[:_MEMBERS_DRAWN]
    bars = [
        (
            f"{one.member}, {one.direction}",
            ((one.direction, one.throttled_seconds / 3600),),
            f"{one.member}, {one.direction}\nthrottled for "
            f"{text_with_unit(Kind.BROKER_HOURS, one.throttled_seconds)} on {one.brokers} "
            f"brokers\ndeferred about {_volume(one.deferred_bytes)}",
        )
        for one in held
    ]
    description = "Hours in which a broker delayed a member, added up over brokers."
    return (
        _bars_plot("throttled", "Time throttled.", description, bars, "broker-hours")
        if bars
        else None
    )


def _bars_plot(key: str, title: str, description: str, bars: Sequence[_Bar], axis: str) -> Plot:
    parts, height = stacked_bars(Rows(24, top=4), bars, axis=axis)
    return plot(key, title, description, parts, height=height, legend=_DIRECTION_LEGEND)


# Bullets: shares of what is allowed, a bar and a mark in each row


@dataclass(frozen=True, slots=True)
class _Bullet:
    label: str
    bar: float
    mark: float
    direction: str
    tip: str


def contracts_plot(uses: Sequence[ContractUse]) -> Plot | None:
    """The members nearest to their contracts; None without contracts."""
    uses = [use for use in uses if use.p95_share is not None and use.peak_share is not None]
    more = f" The {_BULLETS_DRAWN} nearest of {len(uses)}." if len(uses) > _BULLETS_DRAWN else ""
    bullets = [
        _Bullet(
            f"{use.member}, {use.direction}",
            use.p95_share or 0.0,
            use.peak_share or 0.0,
            use.direction,
            f"{use.member}, {use.direction}\n"
            f"p95 {rate_words(use.p95_rate)}, {_percent(use.p95_share)}\n"
            f"peak {rate_words(use.peak_rate)}, {_percent(use.peak_share)}\n"
            f"contract {rate_words(use.contract)}",
        )
        for use in uses[:_BULLETS_DRAWN]
    ]
    description = f"p95 of 5-minute rates and peak, on the busiest broker.{more}"
    return _bullet_plot(
        "contract-use",
        "Rates against contracts.",
        description,
        bullets,
        ("p95", "peak", "share of the contract"),
    )


def limits_plot(brokers: Sequence[BrokerFigures]) -> Plot | None:
    """The NICs nearest to their limits; None without limits."""
    limited = [
        nic for nic in brokers if nic.mean_share is not None and nic.busiest_share is not None
    ]
    fullest = sorted(limited, key=lambda nic: -(nic.busiest_share or 0.0))[:_BULLETS_DRAWN]
    bullets = [
        _Bullet(
            f"broker {nic.broker}, {nic.direction}",
            nic.mean_share or 0.0,
            nic.busiest_share or 0.0,
            nic.direction,
            f"broker {nic.broker}, {nic.direction}\nmean {rate_words(nic.mean_rate)}, "
            f"{_percent(nic.mean_share)}\n"
            f"busiest {rate_words(nic.busiest_rate)}, {_percent(nic.busiest_share)}, "
            f"{clock(nic.busiest_start)} UTC\nlimit {rate_words(nic.limit)}",
        )
        for nic in fullest
    ]
    window = duration(fullest[0].busiest_seconds) if fullest else ""
    description = f"Mean of the period and of the busiest {window}, fullest first."
    return _bullet_plot(
        "limits",
        "NICs against limits.",
        description,
        bullets,
        ("mean", f"busiest {window}", "share of the limit"),
    )


def _bullet_plot(
    key: str,
    title: str,
    description: str,
    bullets: Sequence[_Bullet],
    meaning: tuple[str, str, str],
) -> Plot | None:
    """`meaning` is that of the bars, of the marks and of the axis."""
    if not bullets:
        return None
    rows = Rows(22, top=8)
    highest = min(_HIGHEST_SHARE, max(max(one.bar, one.mark) for one in bullets))
    ticks = round_ticks(max(highest, 1.1), count=6)
    across = Scale(0.0, ticks[-1], rows.left, rows.right)
    bottom = rows.at(len(bullets))
    parts = [
        horizontal_axis(
            across,
            labelled(ticks, lambda tick: f"{tick * 100:.0f} %"),
            top=rows.top,
            bottom=bottom,
            title=meaning[2],
        ),
        *(_bullet(one, across, rows, row) for row, one in enumerate(bullets)),
        vertical_line(across.at(1.0), rows.top - 4, bottom, class_="limit"),
    ]
    legend = [(colour, f"{direction}: {meaning[0]}") for colour, direction in _DIRECTION_LEGEND]
    legend += [("mark", meaning[1]), ("limit", "100 %")]
    return plot(key, title, description, parts, height=bottom + 42, legend=legend)


def _bullet(one: _Bullet, across: Scale, rows: Rows, row: int) -> Markup:
    end, mark = (across.at(min(value, across.high)) for value in (one.bar, one.mark))
    top, middle = rows.at(row), rows.at(row) + rows.height / 2
    return element(
        "g",
        rows.name(one.label, row),
        bar(rows.left, top + 4, end - rows.left, rows.height - 8, class_=one.direction),
        element("path", d=f"M{mark:.1f} {middle - 6:.1f}l5 6l-5 6l-5-6z", class_="mark"),
        rows.target(row),
        data_tip=one.tip,
        class_="row",
    )


# Traffic of tiers over time: stacked bars, one plot for each direction


def traffic_plot(period: Period, points: Sequence[TrafficPoint], direction: str) -> Plot:
    """Bars of the mean rate; a tier has the same colour in both directions.

    With more than seven tiers, all but the six with most bytes are drawn as one.
    """
    left, right, top, bottom = 56, WIDTH - 24, 26, 206
    tiers = _tiers_by_volume(points)
    ours = [point for point in points if point.direction == direction]
    steps: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for point in ours:
        steps[point.start][point.tier if point.tier in tiers else _OTHER_TIERS] += point.rate
    ticks = round_ticks(max((sum(rates.values()) for rates in steps.values()), default=0.0) / 1e6)
    across, upward = _time_scale(period, left, right), Scale(0.0, ticks[-1] * 1e6, bottom, top)
    seconds = ours[0].seconds if ours else 0.0
    parts = [
        vertical_axis(
            upward,
            [(tick * 1e6, f"{tick:g}") for tick in ticks],
            left=left,
            right=right,
            title="MB/s",
        ),
        horizontal_axis(across, time_ticks(across.low, across.high), top=bottom, bottom=bottom + 4),
        *(
            _traffic_step(start, seconds, rates, across, upward, tiers)
            for start, rates in steps.items()
        ),
    ]
    step = duration(seconds) if seconds < _HOUR else period.grain if seconds == _HOUR else "step"
    description = f"Mean rate of every {step} by tier, in MB/s, UTC."
    legend = [(_tier_colour(tier, tiers), _tier_text(tier)) for tier in tiers]
    return plot(
        f"traffic-{direction}",
        f"Traffic over time: {direction}.",
        description,
        parts,
        height=bottom + 28,
        legend=legend,
    )


def _tiers_by_volume(points: Sequence[TrafficPoint]) -> Sequence[str]:
    """The tiers to draw, most bytes first; of more than seven, all but six are one."""
    moved: defaultdict[str, int] = defaultdict(int)
    for point in points:
        moved[point.tier] += point.bytes
    ranked = sorted(moved, key=lambda tier: (-moved[tier], tier))
    return ranked if len(ranked) <= _TIER_COLOURS else [*ranked[: _TIER_COLOURS - 1], _OTHER_TIERS]


def _tier_text(tier: str) -> str:
    return tier or "no tier"


def _tier_colour(tier: str, tiers: Sequence[str]) -> str:
    return "others" if tier == _OTHER_TIERS else f"c{list(tiers).index(tier)}"


def _traffic_step(
    start: str,
    seconds: float,
    rates: Mapping[str, float],
    across: Scale,
    upward: Scale,
    tiers: Sequence[str],
) -> Markup:
    """One column, with a tooltip target that is as high as the plot."""
    at = seconds_of(start)
    left, right = across.at(at), min(across.at(at + seconds), across.end)
    base, parts = 0.0, []
    for tier in tiers:
        rate = rates.get(tier, 0.0)
        if rate > 0:
            bottom, top = upward.at(base), upward.at(base + rate)
            parts.append(
                bar(left, top, right - left - 0.6, bottom - top, class_=_tier_colour(tier, tiers))
            )
            base += rate
    length = duration(seconds) if seconds < _HOUR else f"{readable(seconds / _HOUR)} h"
    lines = [
        f"{clock(start)} UTC, {length}",
        *(f"{_tier_text(tier)}: {rate_words(rates.get(tier, 0.0))}" for tier in tiers),
    ]
    target = bar(left, upward.end, right - left, upward.begin - upward.end, class_="target")
    return element(
        "g", *parts, target, data_tip="\n".join([*lines, f"together: {rate_words(base)}"])
    )


def _time_scale(period: Period, left: float, right: float) -> Scale:
    return Scale(seconds_of(period.start), seconds_of(period.end), left, right)


# Load of NICs over time: a row for each broker, a cell for each step coloured by its busiest window


def load_plot(figures: ReportFigures, direction: str) -> Plot:
    """The load of each NIC of one direction, which must have a point."""
    points = [point for point in figures.load if point.direction == direction]
    brokers = sorted({point.broker for point in points})
    rows = Rows(20, left=72, right=WIDTH - 24)
    bottom = rows.at(len(brokers))
    across = _time_scale(figures.period, rows.left, rows.right)
    names = [
        text(f"broker {broker}", rows.left - 6, rows.at(row) + 14, anchor="end")
        for row, broker in enumerate(brokers)
    ]
    parts = [
        element("g", *names, class_="axis"),
        *(
            _load_cell(point, across, rows.at(brokers.index(point.broker)), rows.height)
            for point in points
        ),
        horizontal_axis(across, time_ticks(across.low, across.high), top=bottom, bottom=bottom + 4),
    ]
    window = duration(figures.brokers[0].busiest_seconds)
    shown = (
        f"The mean of every {window}"
        if is_one_window(points[0])
        else f"The busiest {window} of every cell"
    )
    lows = (0.0, *_LOAD_BOUNDS)
    legend = [
        (f"h{place}", f"{lows[place] * 100:.0f} to {bound * 100:.0f} %")
        for place, bound in enumerate(_LOAD_BOUNDS)
    ]
    return plot(
        f"load-{direction}",
        f"Brokers' NICs against their limits: {direction}.",
        f"{shown} as a share of the broker's limit.",
        parts,
        height=bottom + 26,
        legend=[*legend, (f"h{len(_LOAD_BOUNDS)}", "at or over the limit")],
    )


def is_one_window(point: LoadPoint) -> bool:
    """Whether it is as short as windows get, so that its mean is its busiest."""
    return point.seconds < _HOUR


def _load_cell(point: LoadPoint, across: Scale, top: float, height: float) -> Markup:
    at, share = seconds_of(point.start), point.busiest_share or 0.0
    left, right = across.at(at), across.at(at + point.seconds)
    lines = [
        f"broker {point.broker}, {clock(point.start)} UTC",
        f"mean {rate_words(point.rate)}, {_percent(point.share)} of its limit",
    ]
    if not is_one_window(point):
        lines.append(f"busiest {rate_words(point.busiest_rate)}, {_percent(point.busiest_share)}")
    colour = sum(share >= bound for bound in _LOAD_BOUNDS)
    return bar(
        left, top, right - left - 0.5, height - 1.5, class_=f"h{colour}", data_tip="\n".join(lines)
    )


# Throttle episodes: time lines, fuller for a lower quota


def episodes_plot(period: Period, episodes: Sequence[Episode]) -> Plot:
    """A row for each level and direction with its episodes. There must be an episode."""
    keys = sorted(
        {(episode.direction, span.level) for episode in episodes for span in episode.spans}
    )
    rows = Rows(24)
    across = _time_scale(period, rows.left, rows.right)
    drawn = [
        _episode_bar(episode, level, across, rows.at(row))
        for row, (direction, level) in enumerate(keys)
        for episode in episodes
        if episode.direction == direction and any(span.level == level for span in episode.spans)
    ]
    names = [f"{level or 'no level'}, {direction}" for direction, level in keys]
    description = "When quotas of a level were below their contracts, from the audit trail, UTC."
    return _time_lines(
        "episodes", "Throttle episodes of the period.", description, across, rows, names, drawn
    )


def _time_lines(
    key: str,
    title: str,
    description: str,
    across: Scale,
    rows: Rows,
    names: Sequence[str],
    drawn: Sequence[Markup],
    legend: Sequence[tuple[str, str]] = (),
) -> Plot:
    bottom = rows.at(len(names))
    axis = horizontal_axis(across, time_ticks(across.low, across.high), top=rows.top, bottom=bottom)
    labels = [rows.name(name, row) for row, name in enumerate(names)]
    return plot(key, title, description, [axis, *labels, *drawn], height=bottom + 24, legend=legend)


def _episode_bar(episode: Episode, level: str, across: Scale, top: float) -> Markup:
    spans = [span for span in episode.spans if span.level == level]
    begin, end = (
        min((span.begin for span in spans), key=seconds_of),
        max((span.end for span in spans), key=seconds_of),
    )
    left, right = across.at(seconds_of(begin)), across.at(seconds_of(end))
    members = list(dict.fromkeys(span.member for span in spans))
    listed = ", ".join(members[:5]) + (f" and {len(members) - 5} more" if len(members) > 5 else "")
    tip = (
        f"episode {episode.number}, {level} {episode.direction}\n{clock(begin)} to "
        f"{clock(end)} UTC\n{listed}"
    )
    return bar(
        left, top + 4, max(right - left, _NARROWEST), 16, class_=_level_colour(level), data_tip=tip
    )


def _level_colour(level: str) -> str:
    return level.lower() if level in _LEVELS else "others"


def episode_plots(episodes: Sequence[Episode]) -> Iterator[Plot]:
    """The longest episodes, each from its beginning to its end."""
    longest = sorted(episodes, key=lambda one: -one.seconds)[:_EPISODES_DRAWN]
    return (_episode_plot(episode) for episode in sorted(longest, key=lambda one: one.number))


def _episode_plot(episode: Episode) -> Plot:
    """A row for each client. A bar's height is the part of the contract that was taken away."""
    clients = list(dict.fromkeys((span.level, span.member, span.entity) for span in episode.spans))
    begin, end = seconds_of(episode.begin), seconds_of(episode.end)
    rows = Rows(24)
    across = Scale(begin, max(end, begin + 1.0), rows.left, rows.right)
    drawn = [
        _span(span, across, rows.at(clients.index((span.level, span.member, span.entity))))
        for span in episode.spans
    ]
    return _time_lines(
        f"episode-{episode.number}",
        f"Episode {episode.number}: {episode.direction}, {duration(episode.seconds)}.",
        (
            f"From {clock(episode.begin)} UTC. The fuller a row, the more of the contract was "
            "taken away."
        ),
        across,
        rows,
        [f"{member} ({level})" for level, member, _ in clients],
        drawn,
        [
            (_level_colour(level), level)
            for level in _LEVELS
            if any(span.level == level for span in episode.spans)
        ],
    )


def _span(span: EpisodeSpan, across: Scale, top: float) -> Markup:
    left, right = across.at(seconds_of(span.begin)), across.at(seconds_of(span.end))
    width, full = max(right - left, _NARROWEST), 20
    taken = full * (1 - span.fraction)
    tip = (
        f"{span.entity}, {span.level}\n{clock(span.begin)} to {clock(span.end)} UTC\n"
        f"{rate_words(span.quota)} on each broker, {_percent(span.fraction)} of "
        f"{rate_words(span.contract)}"
    )
    return element(
        "g",
        bar(left, top + 2, width, full, class_="contract"),
        bar(left, top + 2 + full - taken, width, taken, class_=_level_colour(span.level)),
        data_tip=tip,
    )


def throttled_windows_plot(period: Period, windows: Sequence[ThrottledWindow]) -> Plot:
    """A row for each tier and direction. There must be a window."""
    keys = sorted({(one.tier, one.direction) for one in windows})
    rows = Rows(24)
    across = _time_scale(period, rows.left, rows.right)
    drawn = [
        _throttled_window(one, across, rows.at(keys.index((one.tier, one.direction))))
        for one in windows
    ]
    description = (
        "By the tier tables, UTC. The fuller a window, the longer the tier was below "
        "its contract in it."
    )
    names = [f"{tier}, {direction}" for tier, direction in keys]
    return _time_lines(
        "throttled-tiers", "Tiers below their contracts.", description, across, rows, names, drawn
    )


def _throttled_window(one: ThrottledWindow, across: Scale, top: float) -> Markup:
    begin, full = seconds_of(one.start), 20
    left, right = across.at(begin), across.at(begin + one.seconds)
    below = max(2.0, full * min(1.0, (one.seconds_throttled + one.seconds_relaxing) / one.seconds))
    tip = (
        f"{one.tier}, {one.direction}, from {clock(one.start)} UTC\nthrottled "
        f"{text_with_unit(Kind.SECONDS, one.seconds_throttled)}, "
        f"relaxing {text_with_unit(Kind.SECONDS, one.seconds_relaxing)}\n{one.throttle_episodes} "
        f"episodes began"
    )
    return bar(
        left,
        top + 2 + full - below,
        max(right - left, 2.0),
        below,
        class_=_level_colour(one.level),
        data_tip=tip,
    )
