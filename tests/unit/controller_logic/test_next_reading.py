"""The next reading comes right after the next sample, neither a whole scrape later nor in a
hurry.
"""

import pytest

from tidegate_logic.model import Direction, NicSpan, Readings
from tidegate_logic.throttle.nic_status import seconds_until_next_reading


@pytest.mark.parametrize(
    ("newest_seconds_ago", "scrape_seconds", "waits"),
    [
        pytest.param([4.0], 15.0, 12.0, id="a second after the next sample"),
        pytest.param([4.0, 8.0], 15.0, 8.0, id="of the broker that is next"),
        pytest.param([14.9], 15.0, 5.0, id="not sooner than allowed"),
        pytest.param([0.1], 15.0, 15.0, id="not later than a scrape"),
        pytest.param([40.0], 15.0, 15.0, id="a NIC that is silent hurries no reading"),
        pytest.param([], 15.0, 15.0, id="nothing known"),
        pytest.param([0.5], 1.0, 5.0, id="many scrapes are read at once"),
    ],
)
def test_the_pause_until_the_next_reading(
    newest_seconds_ago: list[float], scrape_seconds: float, waits: float
) -> None:
    now = 1000.0
    nic = {
        (broker, Direction.EGRESS): (NicSpan(now - ago, scrape_seconds, 1.0),)
        for broker, ago in enumerate(newest_seconds_ago, start=1)
    }
    found = seconds_until_next_reading(
        Readings(now, scrape_seconds, nic), shortest_seconds=5.0, now_seconds=now
    )
    assert found == pytest.approx(waits)
