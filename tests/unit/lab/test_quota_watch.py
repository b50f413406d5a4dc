"""What a broker's log says about quotas, as it grows."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from lab.kafka import Broker, BrokerPlan, Ports
from lab.quota_watch import PRODUCE_KEY, BrokerLogQuotaWatch, QuotaWrite


def plan(directory: Path) -> BrokerPlan:
    return BrokerPlan(
        broker_id=1,
        host="127.0.0.1",
        ports=Ports(internal=1, plain=2, sasl=3, jmx=4),
        zookeeper_connect="",
        directory=directory,
        namespace=None,
        plain_users={},
        zookeeper_login=None,
        extra_properties={},
    )


def line(milliseconds: int, said: str) -> str:
    return f"2026-01-01T00:00:00,{milliseconds:03} INFO ClientQuotaManager {said}\n"


def test_every_change_of_the_users_is_recorded_with_the_time_of_its_line(tmp_path: Path) -> None:
    log = tmp_path / "broker-1.log"
    midnight = time.mktime((2026, 1, 1, 0, 0, 0, 0, 0, -1))
    log.write_text(
        line(1, "Changing PRODUCE quota for user alice to 1000000.0")
        + line(2, "Changing FETCH quota for user alice to 7.0")
        + line(3, "Changing PRODUCE quota for user bob to 8.0")
        + line(4, "Removing PRODUCE quota for user carol")
        + "a line of a stack trace\n"
    )
    seen: list[QuotaWrite] = []
    with BrokerLogQuotaWatch(
        Broker(plan(tmp_path)), ["alice", "carol"], PRODUCE_KEY, on_write=seen.append
    ) as watch:
        assert watch.quotas() == {"alice": 1_000_000, "carol": None}
        with log.open("a") as end:
            end.write(
                line(5, "Changing PRODUCE quota for user alice to 3.0E7") + "2026-01-01T00:00"
            )
            end.flush()
            assert watch.wait_for("alice", 30_000_000, timeout_seconds=10)
            end.write(":00,006 INFO x Removing PRODUCE quota for user alice\n")
        assert watch.wait_for("alice", None, timeout_seconds=10)
    assert seen == watch.writes()
    assert [(write.before, write.after) for write in seen] == [
        (None, 1_000_000),
        (1_000_000, 30_000_000),
        (30_000_000, None),
    ]
    assert [round(write.at_seconds - midnight, 3) for write in seen] == [0.001, 0.005, 0.006]


def test_a_broker_that_was_not_started_has_no_quota(tmp_path: Path) -> None:
    absent = replace(plan(tmp_path), directory=tmp_path / "absent")
    with BrokerLogQuotaWatch(Broker(absent), ["alice"]) as watch:
        assert watch.quotas() == {"alice": None}
        assert not watch.wait_for("alice", 1, timeout_seconds=0.2)
