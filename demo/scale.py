"""How large and how long the experiment is played on this machine. It measures nothing itself: it is told what the machine carried."""

from dataclasses import dataclass

from demo.rates import SAWTOOTH_SECONDS

FULL_CONTRACT = 10_000_000
SMALL_CONTRACT = 3_000_000
# At its largest the experiment delivers four contracts a second; the rest is margin.
_NEEDED_IN_CONTRACTS = 5.0
_OFFERED_IN_CONTRACTS = 2.5


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a phase settles before it is measured, and how long it is measured: whole sawteeth of the throttle."""

    settle_seconds: int
    measure_seconds: int
    measures_before_second_kill: bool


QUICK = Windows(settle_seconds=SAWTOOTH_SECONDS, measure_seconds=2 * SAWTOOTH_SECONDS, measures_before_second_kill=False)
FULL = Windows(settle_seconds=2 * SAWTOOTH_SECONDS, measure_seconds=4 * SAWTOOTH_SECONDS, measures_before_second_kill=True)


@dataclass(frozen=True, slots=True)
class Scale:
    """The contract per partition and what each producer offers, in bytes per second, with the reason for the choice."""

    contract_bytes_per_second: int
    reason: str

    @property
    def offered_bytes_per_second(self) -> int:
        """Two and a half contracts: more than any broker's quota per partition in any phase."""
        return round(_OFFERED_IN_CONTRACTS * self.contract_bytes_per_second)


def scale_for(carried_bytes_per_second: float, *, tried_bytes_per_second: float, cores: int) -> Scale:
    """The full contract where the machine carried enough without any quota; the small one on weak machines."""
    needed = _NEEDED_IN_CONTRACTS * FULL_CONTRACT
    carried = (
        f"without any quota this machine ({cores} cores) carried {carried_bytes_per_second / 1e6:.0f} "
        f"of {tried_bytes_per_second / 1e6:.0f} MB/s"
    )
    if carried_bytes_per_second >= needed:
        return Scale(FULL_CONTRACT, f"{carried}, at least the {needed / 1e6:.0f} MB/s that a contract of 10 MB/s needs")
    return Scale(SMALL_CONTRACT, f"{carried}, less than the {needed / 1e6:.0f} MB/s that 10 MB/s need, so the contract is 3 MB/s")
