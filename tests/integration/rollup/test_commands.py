"""The commands `tidegate rollup` and `tidegate report` on a real Prometheus and a real Spark."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lab.iceberg import RestCatalog, open_duckdb
from tests.goldens.golden import numbers
from tests.integration.rollup.history_server import HistoryServer
from tests.integration.rollup.known_history import (
    BROKERS,
    CONTRACTS,
    DECLARED_LIMIT,
    END_MS,
    MINUTE_MS,
    RATES,
    SECOND_HOUR_MS,
    THROTTLED_RATE,
    moved,
)
from tidegate.cli import main
from tidegate.commands.context import CommandContext
from tidegate.commands.rollup import span_words
from tidegate.rollup.tables.store import UsageStore

pytestmark = pytest.mark.integration

PERIOD = ("--from", "2026-01-01T22:00:00Z", "--to", "2026-01-02T00:00:00Z")
FETCHED = sum(map(moved, RATES))


def manifest(kind: str, name: str, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "streaming"},
        "spec": spec,
    }


def tier(name: str, level: str, user: str) -> dict[str, object]:
    member = {
        "name": f"member-{user}",
        "user": user,
        "contract": {"perBroker": {"fetch": str(CONTRACTS[user])}},
    }
    throttled = {"perBroker": {"fetch": str(THROTTLED_RATE)}}
    return manifest(
        "BusinessTier",
        name,
        policyRef={"name": "shop"},
        level=level,
        members=[member],
        throttledRates=throttled,
    )


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy of the known history, as a file of resources."""
    kafka = {
        "bootstrapServers": "kafka-1:9092",
        "quotaStore": "ZooKeeper",
        "zookeeper": {"connect": "zk-1:2181"},
    }
    rollup = {"storage": {"url": "s3://usage/shop"}, "pricePerGiB": {"fetch": "0.02"}}
    metrics, brokers = (
        {"prometheus": {"url": "http://prometheus:9090"}},
        {"egress": {"limit": str(DECLARED_LIMIT)}},
    )
    shop = manifest(
        "BrokerBandwidthPolicy",
        "shop",
        mode="Enforce",
        kafka=kafka,
        metrics=metrics,
        brokers=brokers,
        rollup=rollup,
    )
    file = tmp_path_factory.mktemp("policy") / "shop.yaml"
    file.write_text(
        "---\n".join(
            json.dumps(each) + "\n"
            for each in (shop, tier("gold", "L1", "alice"), tier("bulk", "L3", "bob"))
        )
    )
    return file


@pytest.fixture(scope="module")
def store(
    known_history: HistoryServer,
    spark: SparkSession,
    policy: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("usage")
    code, output = call(
        "rollup",
        "run",
        "--prometheus",
        known_history.url,
        *PERIOD,
        "--out",
        str(folder),
        "--file",
        str(policy),
    )
    assert code == 0, output
    assert numbers(output) >= {1, 2}
    assert "remote-read-chunks" in output
    return folder


def call(*arguments: str, now_ms: int = END_MS) -> tuple[int, str]:
    out = io.StringIO()
    return main(
        arguments, CommandContext(out=out, err=out, now_seconds=lambda: now_ms / 1000)
    ), out.getvalue()


def answer(*arguments: str) -> dict[str, object]:
    code, output = call(*arguments, "--output", "json")
    assert code == 0, output
    return dict(json.loads(output))


def test_show_lists_the_largest_users_first(store: Path) -> None:
    rows = answer("rollup", "show", "usage_1h", "--store", str(store))["rows"]
    assert isinstance(rows, Sequence)
    assert {row["user"] for row in rows[:2]} == {"alice"}
    assert sum(row["bytes"] for row in rows) == FETCHED


def test_the_hour_under_way_is_published_as_far_as_it_is_over_and_whole_by_the_next_run(
    known_history: HistoryServer, spark: SparkSession, policy: Path, store: Path, tmp_path: Path
) -> None:
    source = ("--prometheus", known_history.url, "--from", PERIOD[1], "--file", str(policy))
    asked = ("rollup", "run", *source, "--out", str(tmp_path), "--running")
    code, output = call(*asked, now_ms=SECOND_HOUR_MS + 17 * MINUTE_MS)
    assert code == 0, output
    assert span_words(SECOND_HOUR_MS - 60 * MINUTE_MS, SECOND_HOUR_MS + 15 * MINUTE_MS) in output
    used = {row["user"]: 0 for row in rows_of(tmp_path)}
    for row in rows_of(tmp_path):
        used[row["user"]] += row["bytes"]
    seconds_held = 5 * 60
    assert used == {
        "alice": len(BROKERS) * RATES["alice"] * 4500,
        "bob": len(BROKERS)
        * (RATES["bob"] * (4500 - seconds_held) + THROTTLED_RATE * seconds_held),
    }
    assert call(*asked, now_ms=END_MS)[0] == 0
    assert rows_of(tmp_path) == rows_of(store)
    assert answer("rollup", "verify", "--store", str(tmp_path))["whole"] is True


def rows_of(store: Path) -> list[dict[str, Any]]:
    rows = UsageStore.at(str(store)).rows("usage_5m").to_pylist()
    return sorted(
        rows, key=lambda row: (row["window_start"], row["broker"], row["user"], row["direction"])
    )


@pytest.mark.long  # test_iceberg reads tables by other engines too, and commits to a catalog
def test_a_run_with_a_catalog_publishes_and_commits_and_another_engine_has_every_byte(
    known_history: HistoryServer, spark: SparkSession, policy: Path, tmp_path: Path
) -> None:
    asked = ("--prometheus", known_history.url, *PERIOD, "--file", str(policy))
    with RestCatalog(tmp_path / "catalog") as rest, open_duckdb() as reader:
        place = ("--out", str(tmp_path / "usage"), "--catalog", f"{rest.uri}?namespace=orders")
        code, output = call("rollup", "run", *asked, *place)
        assert code == 0, output
        reader.attach(rest.uri)
        for table in ("usage_5m", "usage_1h"):
            by_user = f'select "user", sum(bytes)::bigint from lake.orders.{table} group by all'
            assert dict(reader.ask(by_user)) == {user: moved(user) for user in RATES}
        hours = "select distinct window_start::varchar from lake.orders.tier_1h order by all"
        assert [at[:13] for (at,) in reader.ask(hours)] == ["2026-01-01 22", "2026-01-01 23"]
        # a run that finds nothing new leaves the tables as they are
        snapshots = "select count(*) from iceberg_snapshots(lake.orders.usage_5m)"
        before = reader.ask(snapshots)
        assert call("rollup", "run", *asked, *place)[0] == 0
        assert reader.ask(snapshots) == before
        rest.process.kill()
        code, output = call("rollup", "run", *asked, *place)
    assert code == 0, output
    assert "catalog: The Iceberg catalog of type rest could not be updated" in output


def test_a_catalog_with_a_login_in_its_address_is_refused() -> None:
    asked = ("--prometheus", "http://127.0.0.1:9", "--from", "3h", "--out", "x")
    code, output = call("rollup", "run", *asked, "--catalog", "https://lake?token=secret")
    assert code == 1
    assert "ICEBERG_TOKEN" in output


def test_verify_finds_a_whole_store_whole_and_a_torn_one_torn(store: Path) -> None:
    assert answer("rollup", "verify", "--store", str(store))["sound"] is True
    file = next((store / "usage_1h").rglob("*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    try:
        code, output = call("rollup", "verify", "--store", str(store))
    finally:
        file.write_bytes(content)
    assert code == 1, output
    assert file.name in output


def test_the_report_has_every_byte(store: Path, tmp_path: Path) -> None:
    code, output = call(
        "report",
        "--store",
        str(store),
        *PERIOD,
        "--out",
        str(tmp_path),
        "--fetch-price",
        "0.02",
        "--currency",
        "EUR",
    )
    assert code == 0, output
    figures = json.loads((tmp_path / "report.json").read_text())
    assert figures["totalBytes"] == FETCHED
    assert "alice" in (tmp_path / "report.html").read_text()


def test_a_report_with_the_policy_names_members_and_recommends_contracts(
    store: Path, policy: Path, tmp_path: Path
) -> None:
    code, output = call(
        "report", "--store", str(store), *PERIOD, "--out", str(tmp_path), "--file", str(policy)
    )
    assert code == 0, output
    figures = json.loads((tmp_path / "report.json").read_text())
    assert {(one["member"], one["tier"], one["level"]) for one in figures["members"]} == {
        ("member-alice", "streaming/gold", "L1"),
        ("member-bob", "streaming/bulk", "L3"),
    }
    assert [(one["what"], one["amount"], one["unit"]) for one in figures["prices"]] == [
        ("fetch", "0.02", "GiB"),
        ("produce", None, "GiB"),
    ]
    recommended = {
        one["member"]: (one["contract"], one["recommended"], one["reason"])
        for one in figures["recommendations"]
    }
    assert recommended == {
        "member-alice": (CONTRACTS["alice"], 1_300_000, "Recommended"),
        "member-bob": (
            CONTRACTS["bob"],
            None,
            "ShareSpent",
        ),  # it moves more than its contract, of limits that are promised to others
    }
    assert [
        (one["tier"], one["throttleEpisodes"], one["secondsThrottled"])
        for one in figures["throttledWindows"]
    ] == [("streaming/bulk", 1, 480.0)]
    assert any("node_network_transmit_bytes_total" in one["how"] for one in figures["recipes"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (
                "rollup",
                "run",
                "--prometheus",
                "http://127.0.0.1:9",
                "--from",
                "10m",
                "--to",
                "5m",
                "--out",
                "x",
            ),
            "no whole hour",
        ),
        (("rollup", "show", "usage_2h", "--store", "x"), "There is no table usage_2h"),
        (("report", "--store", "x", *PERIOD, "--fetch-price", "free"), "'free' is not a price"),
        (("report", "--store", "x", "--from", "yesterday"), "'yesterday' is not a time"),
        (("report", "--store", "/nowhere/at/all", *PERIOD), "Nothing is published at"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: Sequence[str], message: str) -> None:
    code, output = call(*arguments)
    assert code == 1
    assert message in output
