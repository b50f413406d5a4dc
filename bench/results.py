"""One measured figure with its bound, and statistics that say how they were taken. It measures nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` was measured in `unit`; it keeps the bound when it is at most `bound`. None = no bound."""

    name: str
    value: float
    unit: str
    bound: float | None
    note: str = ""

    @property
    def kept(self) -> bool:
        return self.bound is None or self.value <= self.bound

    def row(self) -> str:
        """A row of the page's table."""
        bound = "" if self.bound is None else f"at most {self.bound:g} {self.unit}"
        verdict = "" if self.bound is None else ("kept" if self.kept else "**missed**")
        return f"| {self.name} | {self.value:.3g} {self.unit} | {bound} | {verdict} | {self.note} |"


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed; ValueError without values."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def median_of(figures: Sequence[Figure]) -> Figure:
    """One figure for several measurements of the same, at least one: their median, with the best and the worst beside it."""
    values = sorted(figure.value for figure in figures)
    first = figures[0]
    note = f"best {values[0]:.3g} {first.unit}, worst {values[-1]:.3g} {first.unit}"
    return replace(first, name=f"{first.name}, median of {len(values)}", value=median(values), note=note)
