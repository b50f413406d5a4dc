"""What experiments 2 and 3 of a run leave behind: Tidegate's episode and that of the published way. Report and summary read only this."""

from dataclasses import dataclass

from demo.episode import Episode
from demo.tide.length import TideLength
from demo.tide.verdict import tide_checks
from demo.verdict import Check


@dataclass(frozen=True, slots=True)
class TideOutcome:
    """One run of experiments 2 and 3. `cliff` is None where the published way was not played; `card_source` says where the card's bytes
    come from. `left_out` is an earlier playing that missed a bound while the machine's host took its processors.
    """

    length: TideLength
    gate: Episode
    cliff: Episode | None
    card_source: str
    left_out: Episode | None = None

    def checks(self) -> list[Check]:
        """Every bound of both experiments."""
        return tide_checks(self.gate)

    @property
    def passed(self) -> bool:
        return all(check.kept for check in self.checks())
