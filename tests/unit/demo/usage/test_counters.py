"""The brokers' counters, added up sample by sample."""

import pytest

from demo.usage_outcome import Reading, counted_by_brokers, grown_until
from lab.prometheus import PrometheusLab

READINGS: list[Reading] = [(1000, 100), (2000, 130), (3000, 170), (4000, 171)]


@pytest.mark.parametrize(
    ("until_ms", "grown"),
    [(900, 0), (1000, 0), (2000, 30), (2400, 30 + 16), (2999, 30 + 39), (3000, 70), (9000, 71)],
)
def test_a_byte_between_two_samples_is_shared_out_by_time_in_whole_bytes(until_ms: int, grown: int) -> None:
    assert grown_until(READINGS, until_ms) == grown


def test_a_counter_that_fell_began_anew() -> None:
    assert grown_until([(1000, 500), (2000, 600), (9000, 40), (10_000, 50)], 20_000) == 100 + 40 + 10


@pytest.mark.parametrize("readings", [[], [(1000, 7)]])
def test_one_reading_shows_nothing(readings: list[Reading]) -> None:
    assert grown_until(readings, 5000) == 0


def test_each_broker_and_direction_is_counted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def query(_: object, expression: str) -> list[dict[str, object]]:
        grown = 10 if expression.startswith("kafka_broker_bytesin_total[") else 1
        return [
            {"metric": {"broker": broker}, "values": [[1.0, "5"], [2.004, str(5 + grown * number)]]}
            for number, broker in enumerate(("1", "2"), start=1)
        ]

    monkeypatch.setattr(PrometheusLab, "query", query)
    counted = counted_by_brokers(PrometheusLab(), until_ms=2004, longest_seconds=60)
    assert counted == {(1, "produce"): 10, (2, "produce"): 20, (1, "fetch"): 1, (2, "fetch"): 2}
