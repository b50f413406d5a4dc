"""`tidegate forecast` on the tables of three weeks: the backfill of Monday nights, who would be
throttled for it, and the calendar.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.commands.conftest import World
from tests.unit.rollup.tables.usage import IN_NO_TIER, OF_NOBODY, put
from tidegate.resources.policy import PolicySpec
from tidegate.rollup.schemas import HOUR_MS, TABLES
from tidegate.rollup.tables.store import UsageStore

WEEK_MS = 7 * 24 * HOUR_MS
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()  # a Sunday
TEN = int(datetime(2026, 11, 23, 22, tzinfo=UTC).timestamp() * 1000)  # Monday night
MB = 1_000_000


def published(folder: Path, *, deferred: int = 0) -> None:
    """Three weeks of Monday 22 to 24 at 140 MB/s out of broker 1 with a limit of 100 MB/s."""
    store = UsageStore.at(f"file://{folder}")
    for week in range(3):
        for hour in range(2):
            at_ms = TEN - week * WEEK_MS + hour * HOUR_MS
            nic = {
                **OF_NOBODY,
                "window_start": at_ms,
                "broker": 1,
                "direction": "fetch",
                "nic_bytes": (140 * MB - deferred) * 300,
                "client_bytes": 0,
                "replication_bytes": 0,
                "unattributed_bytes": 0,
                "limit": 100 * MB,
                "over_limit_seconds": 0.0,
            }
            rows = pa.Table.from_pylist([nic], TABLES["broker_5m"].schema)
            put(store, "a", "broker_5m", rows, start_ms=at_ms, now_ms=at_ms)
            usage = [_usage(at_ms, "shop", 40 * MB, 0), _usage(at_ms, "etl", 90 * MB, deferred)]
            rows = pa.Table.from_pylist(usage, TABLES["usage_1h"].schema)
            put(store, "a", "usage_1h", rows, start_ms=at_ms, now_ms=at_ms)


def _usage(at_ms: int, user: str, rate: int, deferred: int) -> dict[str, Any]:
    return {
        **OF_NOBODY,
        **IN_NO_TIER,
        "window_start": at_ms,
        "broker": 1,
        "user": user,
        "client_id": "",
        "direction": "fetch",
        "bytes": rate * 3600,
        "peak_rate": 0.0,
        "throttled_seconds": 0.0,
        "over_contract_seconds": 0.0,
        "deferred_bytes": deferred * 3600,
        "samples": 20,
        "coverage": 1.0,
    }


MANIFESTS = """
apiVersion: tidegate.io/v1alpha1
kind: BrokerBandwidthPolicy
metadata: {name: orders, namespace: streaming}
spec:
  mode: Observe
  kafka: {bootstrapServers: "kafka:9092"}
---
apiVersion: tidegate.io/v1alpha1
kind: BusinessTier
metadata: {name: batch, namespace: streaming}
spec:
  policyRef: {name: orders}
  level: L3
  members: [{name: etl, user: etl, contract: {perBroker: {fetch: 100M}}}]
  throttledRates: {perBroker: {fetch: 1M}}
---
apiVersion: tidegate.io/v1alpha1
kind: BusinessTier
metadata: {name: shop, namespace: streaming}
spec:
  policyRef: {name: orders}
  level: L1
  members: [{name: shop, user: shop, contract: {perBroker: {fetch: 60M}}}]
  throttledRates: {perBroker: {fetch: 10M}}
"""


@pytest.mark.parametrize("deferred", [0, 60 * MB])
def test_the_next_peak_its_cause_and_a_calendar(world: World, deferred: int) -> None:
    """A week that was throttled says the same as one that was not."""
    published(world.folder / "usage", deferred=deferred)
    world.now = NOW
    files = world.folder / "policy.yaml"
    files.write_text(MANIFESTS)
    answer = world.run(
        *("forecast", "--store", str(world.folder / "usage"), "-f", str(files)),
        *("--time-zone", "Europe/Berlin", "-o", "json"),
    )
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["peaks"] == [
        {
            "broker": 1,
            "direction": "egress",
            "from": "2026-11-30T22:00:00Z",
            "to": "2026-12-01T00:00:00Z",
            "usualBytesPerSecond": 140 * MB,
            "highBytesPerSecond": 140 * MB,
            "limitBytesPerSecond": 100 * MB,
            "weeks": 3,
            "throttled": ["user=etl"],
        }
    ]
    # 43 MB/s have to go; at 45 % etl sends 45 of 90 MB/s
    entry = {"from": "23:00", "to": "01:00", "timeZone": "Europe/Berlin", "levels": {"L3": "45%"}}
    assert found["calendar"] == {"entries": [{"days": ["Mon"], **entry}]}
    spec = {
        "mode": "Observe",
        "kafka": {"bootstrapServers": "kafka:9092"},
        "metrics": {"prometheus": {"url": "http://prometheus:9090"}},
        "escalation": {"calendar": found["calendar"]},
    }
    assert PolicySpec.model_validate_json(json.dumps(spec)).escalation.calendar is not None


def test_people_read_a_table_and_where_nothing_is_told_that(world: World) -> None:
    published(world.folder / "usage")
    world.now = NOW
    arguments = ("forecast", "--store", str(world.folder / "usage"))
    answer = world.run(*arguments)
    assert "140 of 100 MB/s" in answer.out
    assert "with -f for who would be throttled" in answer.out
    answer = world.run(*arguments, "--days", "1")
    assert answer.out == "No broker is expected over its limit within 1 days.\n"


def test_a_time_zone_that_there_is_not_is_refused(world: World) -> None:
    answer = world.run("forecast", "--store", str(world.folder), "--time-zone", "Mars/Base")
    assert answer.code == 1
    assert "--time-zone Mars/Base is not in the time zone database" in answer.err
