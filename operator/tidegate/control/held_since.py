"""Remembers since when an input has been missing, so that a hold tells its age and not the age of the last pass."""

from collections.abc import Iterable

from controller_logic.model import Hold
from controller_logic.reasons import Reason


class HeldSince:
    """Keeps the first time of each reason for as long as every pass in between had it too."""

    def __init__(self) -> None:
        self._since: dict[Reason, float] = {}

    def stamp(self, missing: Iterable[tuple[Reason, str]], now_seconds: float) -> tuple[Hold, ...]:
        """Turn what is missing in this pass into holds. A reason that is not among them is forgotten."""
        found = list(missing)
        self._since = {reason: self._since.get(reason, now_seconds) for reason, _ in found}
        return tuple(Hold(reason, message, self._since[reason]) for reason, message in found)
