"""Load stays on this machine, and its rows add up."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.load import LoadClient, LoadPlan, Meter, RateStep, read_rows, refuse_foreign_addresses


def plan_for(bootstrap_servers: str) -> LoadPlan:
    return LoadPlan(
        "alice",
        "produce",
        bootstrap_servers,
        topic="orders",
        partitions=(0, 2),
        duration_seconds=5,
        max_bytes=1000,
        steps=(RateStep(0, 5), RateStep(3, None)),
        settings=(("acks", "all"),),
    )


@pytest.mark.parametrize("servers", ["127.0.0.1:9092", "localhost:9092,127.0.0.9:1", "198.18.7.11:9092,198.19.255.12:9093"])
def test_addresses_of_the_lab_are_allowed(servers: str) -> None:
    refuse_foreign_addresses(servers)


@pytest.mark.parametrize("servers", ["10.0.0.1:9092", "kafka.example.com:9092", "127.0.0.1:9092,198.20.0.1:9092", "[::1]:9092", ""])
def test_any_other_address_is_refused_before_anything_starts(servers: str, tmp_path: Path) -> None:
    with pytest.raises(LabError) as refused:
        LoadClient(plan_for(servers), tmp_path)
    assert servers.partition(",")[2] in str(refused.value) or servers in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_address_reads_like_this(tmp_path: Path, golden: Callable[[str], None]) -> None:
    with pytest.raises(LabError) as refused:
        LoadClient(plan_for("kafka.example.com:9092"), tmp_path)
    golden(str(refused.value))


def test_a_plan_survives_its_journey_to_the_client() -> None:
    plan = plan_for("127.0.0.1:9092")
    assert LoadPlan.from_json(plan.to_json()) == plan


def test_every_second_has_a_row_also_one_without_bytes(tmp_path: Path) -> None:
    out = StringIO()
    meter = Meter("alice", out, unix_seconds=100.7)
    meter.moved(0, 10)
    meter.moved(2, 5)
    meter.throttled(900)
    meter.throttled(300)
    meter.tick(102.2)
    meter.failed()
    meter.close(102.9)
    (tmp_path / "rows").write_text(out.getvalue() + '{"unix_seconds": 103, "cli')
    rows = read_rows(tmp_path / "rows")
    assert [(row.unix_seconds, row.moved_bytes, row.throttle_milliseconds, row.failed) for row in rows] == [
        (100, 15, 900, 0),
        (101, 0, 0, 0),
        (102, 0, 0, 1),
    ]
    assert rows[0].bytes_by_partition == {0: 10, 2: 5}


def test_a_client_that_has_not_begun_has_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "rows") == []
