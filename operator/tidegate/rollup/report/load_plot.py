"""How full brokers' cards were over time: a row a broker, a cell a step, coloured by its busiest window."""

from collections.abc import Sequence

from tidegate.rollup.report.axes import Scale, horizontal_axis, seconds_of, time_ticks
from tidegate.rollup.report.drawing import WIDTH, Words, bar, drawing, figure, legend
from tidegate.rollup.report.figures import LoadPoint, Period
from tidegate.rollup.report.markup import Markup, element
from tidegate.rollup.report.units import Kind, clock, duration, with_unit

_LEFT, _RIGHT, _ROW, _TOP = 72, WIDTH - 24, 20, 6
_BOUNDS = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
_OVER = len(_BOUNDS)
_HOUR = 3600


def load_plot(period: Period, points: Sequence[LoadPoint], window_seconds: int, *, below: Markup | None) -> Markup:
    """Points of one direction; there must be some. Busiest windows are this long."""
    direction = points[0].direction
    brokers = sorted({point.broker for point in points})
    bottom = _TOP + _ROW * len(brokers)
    across = Scale(seconds_of(period.start), seconds_of(period.end), _LEFT, _RIGHT)
    words = Words(
        f"load-{direction}",
        f"Brokers' cards against their limits: {direction}.",
        f"{_shown_of(points[0], duration(window_seconds))} as a share of the broker's limit.",
    )
    names = [
        element("text", f"broker {broker}", x=_LEFT - 6, y=_TOP + _ROW * row + 14, text_anchor="end") for row, broker in enumerate(brokers)
    ]
    picture = drawing(
        words,
        element("g", *names, class_="axis"),
        *(_cell(point, across, _TOP + _ROW * brokers.index(point.broker)) for point in points),
        horizontal_axis(across, list(time_ticks(across.low, across.high)), top=bottom, bottom=bottom + 4),
        height=bottom + 26,
    )
    return figure(words, picture, legend(_legend()), below)


def is_one_window(point: LoadPoint) -> bool:
    """Whether it is as short as windows get, so that its mean is its busiest."""
    return point.seconds < _HOUR


def _shown_of(point: LoadPoint, window: str) -> str:
    return f"The mean of every {window}" if is_one_window(point) else f"The busiest {window} of every cell"


def _cell(point: LoadPoint, across: Scale, top: float) -> Markup:
    at = seconds_of(point.start)
    left, right = across.at(at), across.at(at + point.seconds)
    mean = f"mean {with_unit(Kind.RATE, point.rate)}, {with_unit(Kind.SHARE, point.share)} of its limit"
    busiest = f"busiest {with_unit(Kind.RATE, point.busiest_rate)}, {with_unit(Kind.SHARE, point.busiest_share)}"
    tip = "\n".join([f"broker {point.broker}, {clock(point.start)} UTC", mean, *([] if is_one_window(point) else [busiest])])
    return bar(left, top, right - left - 0.5, _ROW - 1.5, class_=f"h{_class(point.busiest_share or 0.0)}", data_tip=tip)


def _class(share: float) -> int:
    """0 to 5 within the limit, 6 over it."""
    return next((place for place, bound in enumerate(_BOUNDS) if share < bound), _OVER)


def _legend() -> Sequence[tuple[str, str]]:
    lows = (0.0, *_BOUNDS)
    within = [(f"h{place}", f"{lows[place] * 100:.0f} to {bound * 100:.0f} %") for place, bound in enumerate(_BOUNDS)]
    return [*within, (f"h{_OVER}", "at or over the limit")]
