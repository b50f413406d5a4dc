"""How large and how long the experiment is played on this machine. It measures nothing itself: it is told what the machine carried."""

from dataclasses import dataclass

from demo.tide.length import FULL_TIDE, QUICK_TIDE, TideLength
from lab.rates import SAWTOOTH_SECONDS

FULL_CONTRACT = 10_000_000
SMALL_CONTRACT = 3_000_000
# At its largest the experiment delivers four contracts a second; the rest is margin.
NEEDED_BYTES_PER_SECOND = 5 * FULL_CONTRACT
_OFFERED_IN_CONTRACTS = 2.5


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a phase settles before it is measured, and how long it is measured: whole sawteeth of the throttle."""

    settle_seconds: int
    measure_seconds: int
    measures_before_second_kill: bool


@dataclass(frozen=True, slots=True)
class Length:
    """One of the two lengths of the demo: the times of its experiments, and whether the machine is tried for the contract it can carry."""

    windows: Windows
    tide: TideLength
    tries_machine: bool


QUICK = Windows(settle_seconds=SAWTOOTH_SECONDS, measure_seconds=2 * SAWTOOTH_SECONDS, measures_before_second_kill=False)
FULL = Windows(settle_seconds=18, measure_seconds=3 * SAWTOOTH_SECONDS, measures_before_second_kill=True)
# What the environment variable DEMO may say.
LENGTHS = {
    "full": Length(FULL, FULL_TIDE, tries_machine=True),
    "quick": Length(QUICK, QUICK_TIDE, tries_machine=False),
}


@dataclass(frozen=True, slots=True)
class Scale:
    """The contract per partition and what each producer offers, in bytes per second, with the reason for the choice."""

    contract_bytes_per_second: int
    reason: str

    @property
    def offered_bytes_per_second(self) -> int:
        """Two and a half contracts: more than any broker's quota per partition in any phase."""
        return round(_OFFERED_IN_CONTRACTS * self.contract_bytes_per_second)


QUICK_SCALE = Scale(SMALL_CONTRACT, "3 MB/s, because the quick demo does not try what the machine carries; the full one does")


def scale_for(carried_bytes_per_second: float, *, tried_bytes_per_second: float, cores: int) -> Scale:
    """The full contract where the machine carried enough without any quota; the small one on weak machines."""
    carried = (
        f"without any quota this machine ({cores} cores) carried {carried_bytes_per_second / 1e6:.0f} "
        f"of {tried_bytes_per_second / 1e6:.0f} MB/s"
    )
    needed = f"the {NEEDED_BYTES_PER_SECOND / 1e6:.0f} MB/s that a contract of 10 MB/s needs"
    if carried_bytes_per_second >= NEEDED_BYTES_PER_SECOND:
        return Scale(FULL_CONTRACT, f"10 MB/s, because {carried}, at least {needed}")
    return Scale(SMALL_CONTRACT, f"3 MB/s, because the machine is too weak or too busy: {carried}, less than {needed}")
