"""How near to what is allowed: a bar and a mark a row, on a scale of what is allowed. For contracts and for cards' limits alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.rollup.report.axes import Scale, horizontal_axis, round_ticks
from tidegate.rollup.report.drawing import NAMES_WIDTH, WIDTH, Words, bar, drawing, figure, legend, short
from tidegate.rollup.report.markup import Markup, element

_LEFT, _RIGHT, _ROW, _TOP = NAMES_WIDTH, WIDTH - 30, 22, 8
_HIGHEST = 2.5  # of what is allowed; what is above is drawn at the edge, and its tip says how far


@dataclass(frozen=True, slots=True)
class Bullet:
    """Shares of what is allowed. `colour` is a class; `tip` has the numbers."""

    label: str
    bar: float
    mark: float
    colour: str
    tip: str


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a bar and a mark stand for, and the title of the axis."""

    bar: str
    mark: str
    axis: str


def bullet_plot(words: Words, bullets: Sequence[Bullet], meaning: Meaning, *, keys: Sequence[tuple[str, str]]) -> Markup:
    """Rows in the order given. `keys` explains the colours."""
    highest = min(_HIGHEST, max((max(one.bar, one.mark) for one in bullets), default=1.0))
    ticks = round_ticks(max(highest, 1.1), count=6)
    bottom = _TOP + _ROW * len(bullets)
    across = Scale(0.0, ticks[-1], _LEFT, _RIGHT)
    line = element("line", x1=across.at(1.0), x2=across.at(1.0), y1=_TOP - 4, y2=bottom, class_="limit")
    picture = drawing(
        words,
        horizontal_axis(across, [(tick, f"{tick * 100:.0f} %") for tick in ticks], top=_TOP, bottom=bottom, title=meaning.axis),
        *(_row(bullet, across, _TOP + _ROW * row) for row, bullet in enumerate(bullets)),
        line,
        height=bottom + 42,
    )
    shown = [*keys, ("mark", meaning.mark), ("limit", "100 %")]
    return figure(words, picture, legend([(kind, f"{text}: {meaning.bar}") for kind, text in shown[: len(keys)]] + shown[len(keys) :]))


def _row(bullet: Bullet, across: Scale, top: float) -> Markup:
    end, mark = (across.at(min(value, across.high)) for value in (bullet.bar, bullet.mark))
    middle = top + _ROW / 2
    diamond = f"M{mark:.1f} {middle - 6:.1f}l5 6l-5 6l-5-6z"
    return element(
        "g",
        element("text", short(bullet.label), x=_LEFT - 8, y=middle + 4, text_anchor="end"),
        bar(_LEFT, top + 4, end - _LEFT, _ROW - 8, class_=bullet.colour),
        element("path", d=diamond, class_="mark"),
        bar(0, top, WIDTH, _ROW, class_="target"),
        data_tip=bullet.tip,
        class_="row",
    )
