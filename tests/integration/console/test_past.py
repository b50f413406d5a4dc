"""What a real Prometheus has of a day of 50 brokers: two questions, and every line within bounds."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.packages import PROMETHEUS, unpacked
from lab.process import patience
from lab.prometheus import PrometheusLab
from tidegate.console import source
from tidegate.console.history import History
from tidegate.console.source import read_past
from tidegate.prometheus.client import PrometheusClient
from tidegate.prometheus.settings import PrometheusServer
from tidegate_logic.model import Direction, Level

pytestmark = pytest.mark.integration

BROKERS = 50
KEY = "streaming/orders"
_POLICY = 'policy_namespace="streaming",policy="orders"'
_SCRAPE_SECONDS = 30


def metrics_of_a_day(end: int) -> Iterator[str]:
    """The operator's metrics in OpenMetrics: each NIC at half its limit, and one minute over it."""
    times = range(end - 86_400, end, _SCRAPE_SECONDS)
    for name, value in (("bytes", "40000000"), ("limit_bytes", "80000000")):
        yield f"# TYPE tidegate_broker_{name}_per_second gauge"
        for broker in range(1, BROKERS + 1):
            for way in Direction.COMBINED.parts:
                labels = f'{_POLICY},broker="{broker}",direction="{way.value}"'
                for at in times:
                    is_high = name == "bytes" and 0 <= end - 7200 - at < _SCRAPE_SECONDS
                    said = "100000000" if is_high else value
                    yield f"tidegate_broker_{name}_per_second{{{labels}}} {said} {at}"
    yield "# TYPE tidegate_tier_state gauge"
    for at in times:
        state = "Throttled" if end - 7200 <= at < end - 3600 else "Contract"
        yield f'tidegate_tier_state{{{_POLICY},level="L3",state="{state}"}} 1 {at}'
    yield "# EOF"


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[PrometheusLab]:
    text = tmp_path / "day.txt"
    with text.open("w") as stream:
        stream.writelines(f"{line}\n" for line in metrics_of_a_day(int(time.time()) - 30))
    promtool = unpacked(PROMETHEUS) / "usr" / "bin" / "promtool"
    argv = [promtool, "tsdb", "create-blocks-from", "openmetrics", text, tmp_path / "data"]
    subprocess.run(argv, check=True, capture_output=True, timeout=patience(120))
    with PrometheusLab(directory=tmp_path) as started:
        yield started


def test_a_day_of_fifty_brokers_takes_two_questions(
    prometheus: PrometheusLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = PrometheusClient(PrometheusServer(prometheus.url))
    asked: list[str] = []
    query = client.query

    def counted(promql: str, *, until_monotonic_seconds: float) -> object:
        asked.append(promql)
        return query(promql, until_monotonic_seconds=until_monotonic_seconds)

    monkeypatch.setattr(client, "query", counted)
    monkeypatch.setattr(source, "_PAST_SECONDS", patience(30))
    begin = time.perf_counter()
    past = read_past(client, KEY)
    print(f"a day of {BROKERS} brokers read in {time.perf_counter() - begin:.2f} s")
    assert len(asked) == 2
    assert len(past.nics) == 2 * BROKERS
    for shares in past.nics.values():
        assert 1400 <= len(shares) <= 1500
        assert max(share for _, share in shares) == 1.25, "no burst between two minutes is lost"
        assert min(share for _, share in shares) == 0.5
    throttled = [at for at, state in past.levels[Level.L3] if state == "Throttled"]
    assert 58 <= len(throttled) <= 66  # an hour, and what Prometheus looks back
    history = History()
    history.begin(KEY, past)
    points = history.nic(KEY, (1, Direction.EGRESS), 86_400)
    assert 300 <= len(points) <= 362
    assert max(share or 0.0 for _, share in points) == 1.25
