"""The size of the experiment follows from what the machine carried."""

from collections.abc import Callable

import pytest

from demo.script import FULL_CONTRACT, SMALL_CONTRACT, scale_for
from tests.goldens.golden import numbers


@pytest.mark.parametrize(("carried", "contract"), [(49e6, SMALL_CONTRACT), (50e6, FULL_CONTRACT), (0, SMALL_CONTRACT)])
def test_a_weak_machine_plays_three_megabytes_per_partition(carried: float, contract: int) -> None:
    assert scale_for(carried, tried_bytes_per_second=90e6, cores=2).contract_bytes_per_second == contract


def test_the_reason_names_what_the_machine_carried_and_what_was_needed(golden: Callable[[str], None]) -> None:
    reason = scale_for(41.4e6, tried_bytes_per_second=90e6, cores=2).reason
    assert numbers(reason) >= {41, 90, 50, 3}
    golden(reason)
