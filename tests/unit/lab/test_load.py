"""Load clients: they reach this machine only, move what was asked for, and their rows add up."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.load import (
    LoadClient,
    LoadPlan,
    Meter,
    Pacing,
    ProcessorShare,
    ProcessorTimes,
    RateStep,
    read_rows,
    refuse_foreign_addresses,
)

# --- addresses and rows ---------------------------------------------------------------------------
# Load stays on this machine, and its rows add up.


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


@pytest.mark.parametrize(
    "servers",
    ["127.0.0.1:9092", "localhost:9092,127.0.0.9:1", "198.18.7.11:9092,198.19.255.12:9093"],
)
def test_addresses_of_the_lab_are_allowed(servers: str) -> None:
    refuse_foreign_addresses(servers)


@pytest.mark.parametrize(
    "servers",
    ["10.0.0.1:9092", "kafka.example.com:9092", "127.0.0.1:9092,198.20.0.1:9092", "[::1]:9092", ""],
)
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
    assert [
        (row.unix_seconds, row.moved_bytes, row.throttle_milliseconds, row.failed) for row in rows
    ] == [
        (100, 15, 900, 0),
        (101, 0, 0, 0),
        (102, 0, 0, 1),
    ]
    assert rows[0].bytes_by_partition == {0: 10, 2: 5}


# --- pacing ---------------------------------------------------------------------------------------
# A load client's demand: steady, in steps, flat out, with or without a backlog.


MESSAGE = 10_000


def moved_bytes(pacing: Pacing, *, seconds: float, served: tuple[float, float] = (0, 1e9)) -> int:
    """Bytes that a client moves that asks every millisecond and is served only between the two
    moments of `served`.
    """
    moved = 0
    for millisecond in range(int(seconds * 1000)):
        now = millisecond / 1000
        while served[0] <= now < served[1] and pacing.wait_seconds(now) == 0 and moved < 10**8:
            pacing.moved(MESSAGE)
            moved += MESSAGE
        pacing.wait_seconds(now)
    return moved


@pytest.mark.parametrize("rate", [50_000, 1_000_000, 25_000_000])
def test_a_served_client_moves_its_rate(rate: int) -> None:
    assert moved_bytes(Pacing([RateStep(0, rate)], catch_up_seconds=2), seconds=2) == pytest.approx(
        2 * rate, abs=2 * MESSAGE
    )


def test_steps_change_the_demand() -> None:
    pacing = Pacing(
        [RateStep(0, 1_000_000), RateStep(1, 0), RateStep(2, 3_000_000)], catch_up_seconds=0
    )
    assert moved_bytes(pacing, seconds=3) == pytest.approx(4_000_000, rel=0.02)


@pytest.mark.parametrize(("catch_up_seconds", "made_up_for"), [(0, 0), (1, 1), (60, 3)])
def test_missed_demand_is_made_up_for_within_the_backlog(
    catch_up_seconds: float, made_up_for: float
) -> None:
    pacing = Pacing([RateStep(0, 1_000_000)], catch_up_seconds=catch_up_seconds)
    moved = moved_bytes(pacing, seconds=4, served=(3, 4))
    assert moved == pytest.approx((1 + made_up_for) * 1_000_000, abs=3 * MESSAGE)


# --- processor time -------------------------------------------------------------------------------
# Processor time of the machine during a phase, from the kernel's counters.


def times(tmp_path: Path, counters: str) -> ProcessorTimes:
    source = tmp_path / "stat"
    source.write_text(f"cpu  {counters}\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    return ProcessorTimes.now(source)


def test_what_the_host_took_is_neither_busy_nor_idle(tmp_path: Path) -> None:
    before = times(tmp_path, "100 10 50 1000 40 0 5 20 7 7")
    after = times(tmp_path, "130 20 60 1030 50 0 5 30 7 7")
    assert ProcessorShare.between(before, after) == ProcessorShare(
        busy_percent=50.0, stolen_percent=10.0
    )
