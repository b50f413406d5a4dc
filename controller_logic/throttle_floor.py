"""Below which rate an entity is never throttled, and what decided it: its tier, or clients that would break.

A producer that gets less than a full buffer per delivery timeout loses records of whoever shares the quota; a consumer starves below a
fetch. Where that is more than the tier's throttled rate it is said, not hidden.
"""

from dataclasses import dataclass

from controller_logic.model import MIN_BYTE_RATE
from controller_logic.readings import Direction
from controller_logic.throttle.input import ManagedRate
from controller_logic.throttle.settings import ClientFloors


@dataclass(frozen=True, slots=True)
class Floor:
    """The lowest quota in bytes/s; `because` says what raised it above the tier's throttled rate, empty = nothing did."""

    value: int
    because: str = ""


def floor_of(rate: ManagedRate, floors: ClientFloors) -> Floor:
    """Never above the contract. Raises ValueError for a rate that is never throttled."""
    if rate.floor is None:
        raise ValueError(f"{rate.entity} is never throttled, so it has no floor")
    needed, because = _needed(rate, floors)
    tier = max(rate.floor, MIN_BYTE_RATE)
    if needed > tier and rate.contract > tier:
        return Floor(min(rate.contract, needed), because)
    return Floor(min(rate.contract, tier))


def _needed(rate: ManagedRate, floors: ClientFloors) -> tuple[int, str]:
    if rate.direction is Direction.EGRESS:
        return floors.consumer, f"a consumer needs {floors.consumer / 1e6:.2f} MB/s"
    needed = rate.producers * floors.per_producer
    return needed, f"{rate.producers} producers need {floors.per_producer / 1e6:.2f} MB/s each, or their buffers expire"
