"""A finance person's path: a month of a time zone, cost centres, a rate card, a FOCUS file."""

from __future__ import annotations

import copy
import csv
import io
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.unit.report.small_request import table
from tidegate.cli import main
from tidegate.commands.context import CommandContext
from tidegate.report.rate_card import GIB
from tidegate.rollup.schemas import BROKER, DAY_MS, FIVE_MINUTES_MS, HOUR_MS, USAGE, USAGE_5M
from tidegate.rollup.tables.publication import Publication, publish, stage
from tidegate.rollup.tables.store import UsageStore


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


NOW = "2026-11-24T08:00:00+00:00"
SHOP, OPS = '{"costCenter":"4711","team":"shop"}', '{"costCenter":"4712","team":"ops"}'
# hours of October in Berlin, and their neighbours: the clocks go back on the 25th
IN = (
    "2026-09-30T22:00:00Z",
    "2026-10-14T22:00:00Z",
    "2026-10-25T00:00:00Z",
    "2026-10-31T22:00:00Z",
)
OUT = ("2026-09-30T21:00:00Z", "2026-10-31T23:00:00Z")
CARD = """
currency: EUR
issuer: Data platform
rates:
  - perGiB: {fetch: "1.00"}
  - from: 2026-10-15
    perGiB: {fetch: "2.00"}
    levels: {L0: {fetch: "5.00"}}
    unattributed: OwnLine
budgets:
  - {label: team, value: shop, amountPerMonth: "10.00"}
"""
TIER = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "BusinessTier",
    "metadata": {"name": "gold", "namespace": "ns"},
    "spec": {
        "policyRef": {"name": "shop"},
        "level": "L0",
        "labels": {"team": "today"},
        "members": [{"name": "checkout", "user": "a", "labels": {"costCenter": "9"}}],
    },
}
POLICY = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "BrokerBandwidthPolicy",
    "metadata": {"name": "shop", "namespace": "ns"},
    "spec": {
        "mode": "Observe",
        "kafka": {
            "bootstrapServers": "k:9092",
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": "z:2181"},
        },
    },
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In each hour a moves 2 GiB, b one, and the broker counts half a GiB more."""
    folder = tmp_path_factory.mktemp("usage")
    publish_hours(folder, "run-1", (*IN, *OUT))
    return folder


def publish_hours(folder: Path, run: str, hours: Iterable[str], *, more_of_a: int = 0) -> None:
    found = UsageStore.at(f"file://{folder}")
    for at_ms in map(ms, hours):
        usage = [
            {"window_start": at_ms, "user": "a", "tier": "ns/gold", "labels": SHOP},
            {"window_start": at_ms, "user": "b", "labels": OPS},
        ]
        counts = (2 * GIB + more_of_a, GIB)
        rows = [{**row, "bytes": count} for row, count in zip(usage, counts, strict=True)]
        nics = [
            {
                "window_start": at_ms,
                "client_bytes": 3 * GIB + GIB // 2 + more_of_a,
                "unattributed_bytes": GIB // 2,
            }
        ]
        for name, made in (("usage_1h", table(USAGE, rows)), ("broker_1h", table(BROKER, nics))):
            staged = stage(found, run, name, made, part=0)
            publication = Publication(table=name, window_start_ms=at_ms, run_id=run, staged=staged)
            publish(found, publication, now_ms=ms(NOW))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "rates.yaml").write_text(CARD)
    (tmp_path / "policy.yaml").write_text(f"{json.dumps(POLICY)}\n---\n{json.dumps(TIER)}\n")
    return tmp_path


def call(*arguments: str, now: str = NOW) -> tuple[int, str]:
    out = io.StringIO()
    context = CommandContext(out=out, err=out, now_seconds=lambda: ms(now) / 1000)
    return main(arguments, context), out.getvalue()


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def money(rows: Iterable[Mapping[str, str]], key: str) -> dict[str, Decimal]:
    return {row[key]: Decimal(row["amount"]) for row in rows}


def test_a_finance_persons_path(store: Path, files: Path) -> None:
    out = files / "october"
    code, said = call(
        *("report", "--store", str(store), "--month", "2026-10", "--timezone", "Europe/Berlin"),
        *("--by", "label:team", "--by", "label:costCenter"),
        *("--rate-card", str(files / "rates.yaml"), "--file", str(files / "policy.yaml")),
        *("--focus", "--metrics-file", str(files / "labels.prom"), "--out", str(out)),
    )
    assert code == 0, said
    document = json.loads((out / "report.json").read_text())
    period = document["period"]
    assert (period["name"], period["timezone"]) == ("2026-10", "Europe/Berlin")
    assert (period["start"], period["end"]) == ("2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z")
    assert (period["windows"], period["publishedWindows"]) == (745, 4)
    assert document["totalBytes"] == 4 * 3 * GIB
    # one hour at the first rates: 2 + 1; three at the second: 3 x (2 x 5 + 2 + 0.5 x 2)
    assert document["totalAmount"] == "42.00"
    labels = rows_of(out / "labels.csv")
    assert money([row for row in labels if row["label"] == "team"], "value") == {
        "shop": Decimal("32.00"),
        "ops": Decimal("7.00"),
        "": Decimal("3.00"),
    }
    assert money([row for row in labels if row["label"] == "costCenter"], "value") == {
        "4711": Decimal("32.00"),
        "4712": Decimal("7.00"),
        "": Decimal("3.00"),
    }
    shop = next(row for row in labels if row["value"] == "shop")
    assert (shop["budget"], shop["budgetShare"]) == ("10.00", "3.2")
    metrics = (files / "labels.prom").read_text()
    assert 'tidegate_label_budget_ratio{policy="ns/shop",label="team",value="shop",' in metrics
    assert metrics.splitlines()[-1].endswith("1793487600")
    dataset = pq.read_table(out / "focus.parquet").to_pylist()
    assert sum(row["BilledCost"] for row in dataset) == Decimal(42)
    assert {row["ProviderName"] for row in dataset} == {"Data platform"}
    assert len(rows_of(out / "focus.csv")) == len(dataset) == 5
    assert "the month 2026-10 in Europe/Berlin" in (out / "report.html").read_text()


def test_a_closed_month_is_corrected_on_the_next_bill(tmp_path: Path, files: Path) -> None:
    usage = tmp_path / "usage"
    publish_hours(usage, "run-1", IN)
    november = "2026-11-02T10:00:00Z"
    publish_hours(usage, "run-1", [november])
    same = ("--store", str(usage), "--timezone", "Europe/Berlin")
    same += ("--rate-card", str(files / "rates.yaml"), "--file", str(files / "policy.yaml"))
    code, said = call("report", "close", "2026-10", *same, "--with-gaps")
    assert code == 0, said
    assert "is closed with 42.00 EUR" in said
    publish_hours(usage, "run-2", [IN[1]], more_of_a=3 * GIB)  # at 5.00 for a GiB of level L0

    october, out = files / "october", files / "november"
    code, said = call("report", "--month", "2026-10", *same, "--focus", "--out", str(october))
    assert code == 0, said
    document = json.loads((october / "report.json").read_text())
    assert (document["totalAmount"], document["corrections"]) == ("42.00", [])
    assert document["closed"]["nextBill"] == "2026-11"
    assert document["closed"]["amountSince"] == "15.00"
    assert document["closed"]["bytesNow"] - document["closed"]["bytes"] == 3 * GIB
    rows = pq.read_table(october / "focus.parquet").to_pylist()
    assert sum(row["BilledCost"] for row in rows) == Decimal(42)

    code, said = call("report", "--month", "2026-11", *same, "--focus", "--out", str(out))
    assert code == 0, said
    assert "corrections of 2026-10 (lines: 1), +15.00 EUR: with them 28.00 EUR are due" in said
    (corrected,) = rows_of(out / "corrections.csv")
    assert (corrected["member"], corrected["bytes"], corrected["amount"]) == (
        "checkout",
        str(3 * GIB),
        "15.00",
    )
    dataset = pq.read_table(out / "focus.parquet").to_pylist()
    assert sum(row["BilledCost"] for row in dataset) == Decimal(28)
    (row,) = [row for row in dataset if row["ChargeClass"] == "Correction"]
    assert row["ChargePeriodStart"].isoformat() == "2026-10-14T22:00:00+00:00"
    assert row["BillingPeriodStart"].isoformat() == "2026-10-31T23:00:00+00:00"
    assert json.loads(row["Tags"]) == {"costCenter": "4711", "team": "shop"}
    code, said = call("report", "adjustments", "2026-10", "--store", str(usage))
    assert code == 0, said
    assert "+15.00 EUR" in said
    assert "2026-11" in said


def test_labels_of_today_are_taken_where_they_are_asked_for(store: Path, files: Path) -> None:
    code, said = call(
        *("report", "--store", str(store), "--month", "2026-10", "--timezone", "Europe/Berlin"),
        *("--by", "label:team", "--labels-of-today", "--file", str(files / "policy.yaml")),
        *("--out", str(files / "out")),
    )
    assert code == 0, said
    teams = {row["value"]: int(row["bytes"]) for row in rows_of(files / "out" / "labels.csv")}
    assert teams == {"today": 8 * GIB, "ops": 4 * GIB}


def test_a_month_under_way_is_reported_as_far_as_it_is(store: Path, files: Path) -> None:
    code, said = call(
        *("report", "--store", str(store), "--month", "2026-10", "--timezone", "Europe/Berlin"),
        *("--out", str(files / "out")),
        now="2026-10-15T00:30:00+00:00",
    )
    assert code == 0, said
    period = json.loads((files / "out" / "report.json").read_text())["period"]
    assert period["end"] == "2026-10-15T00:00:00Z"
    assert period["before"] == "2026-08-31T22:00:00Z/2026-09-15T00:00:00Z"


@pytest.fixture(scope="module")
def four_hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hours until 08:00 in which a fetches 20 MB/s."""
    folder = tmp_path_factory.mktemp("four-hours")
    publish_hours(folder, "run-1", (f"2026-11-24T0{hour}:00:00Z" for hour in range(4, 8)))
    found = UsageStore.at(f"file://{folder}")
    for at_ms in range(ms("2026-11-24T04:00:00Z"), ms("2026-11-24T08:00:00Z"), HOUR_MS):
        starts = range(at_ms, at_ms + HOUR_MS, FIVE_MINUTES_MS)
        rows = [{"window_start": one, "user": "a", "bytes": 300 * 20_000_000} for one in starts]
        staged = stage(found, "run-2", "usage_5m", table(USAGE_5M, rows), part=0)
        publication = Publication(
            table="usage_5m", window_start_ms=at_ms, run_id="run-2", staged=staged
        )
        publish(found, publication, now_ms=ms(NOW))
    return folder


@pytest.mark.parametrize(
    ("arguments", "recommended", "words"),
    [
        (
            ("--from", "4h"),
            26_000_000,
            "five minutes of the reported 4 hours stayed under 20 MB/s",
        ),
        (("--from", "1h"), 26_000_000, "five minutes of the reported hour stayed under 20 MB/s"),
        (
            ("--from", "5h"),
            26_000_000,
            "five minutes of the reported 5 hours stayed under 20 MB/s",
        ),
        (("--from", "1d"), None, "samples cover 17% of the reported 24 hours"),
        (("--from", "47h"), None, "samples cover 9% of the reported 47 hours"),
        (("--from", "2d"), None, "samples cover 8% of the reported 2 days"),
    ],
)
def test_a_recommendation_says_how_much_time_it_rests_on(
    four_hours: Path,
    files: Path,
    arguments: tuple[str, ...],
    recommended: int | None,
    words: str,
) -> None:
    """In hours below two days: of four hours it is not "the last 1 days"."""
    tier = copy.deepcopy(TIER)
    tier["spec"]["members"][0]["contract"] = {"total": {"fetch": "60M"}}  # type: ignore[index]
    (files / "with-contract.yaml").write_text(f"{json.dumps(POLICY)}\n---\n{json.dumps(tier)}\n")
    code, said = call(
        *("report", "--store", str(four_hours), "--file", str(files / "with-contract.yaml")),
        *(*arguments, "--out", str(files / "out")),
    )
    assert code == 0, said
    (found,) = json.loads((files / "out" / "report.json").read_text())["recommendations"]
    assert (found["member"], found["recommended"]) == ("checkout", recommended)
    assert words in found["message"]
    assert words in " ".join((files / "out" / "report.html").read_text().split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "either --month 2026-10, or --from and --to"),
        (("--month", "2026-10", "--from", "2d"), "either --month 2026-10, or --from and --to"),
        (("--month", "October"), "is not a month"),
        (("--month", "2026-10", "--timezone", "Europe/Bonn"), "is not a time zone"),
        (("--month", "2026-10", "--timezone", "../etc/passwd"), "is not a time zone"),
        (("--month", "2026-10", "--timezone", "Asia/Kolkata"), "whole hour of UTC"),
        (("--from", "2026-10-01T00:00:00+05:30"), "is not a whole hour in UTC"),
        (("--month", "2027-01"), "No hour of 2027-01 is over"),
        (("--month", "2026-10", "--by", "team"), "label:team"),
        (("--month", "2026-10", "--rate-card", "none.yaml"), "cannot be read"),
        (("--month", "2026-10", "--timezone", "Europe/Berlin", "--focus"), "nothing is charged"),
    ],
)
def test_what_cannot_be_reported_is_refused_with_what_to_do(
    store: Path, files: Path, arguments: tuple[str, ...], words: str
) -> None:
    out = files / "out"
    code, said = call("report", "--store", str(store), "--out", str(out), *arguments)
    assert code == 1
    assert words in " ".join(said.split())
    assert not out.exists()


def test_a_rate_card_and_prices_beside_it_are_refused(store: Path, files: Path) -> None:
    code, said = call(
        *("report", "--store", str(store), "--month", "2026-10", "--timezone", "Europe/Berlin"),
        *("--rate-card", str(files / "rates.yaml"), "--fetch-price", "1"),
    )
    assert code == 1
    assert "leave out --fetch-price" in " ".join(said.split())


def test_times_without_an_offset_are_of_the_time_zone(store: Path, files: Path) -> None:
    code, said = call(
        *("report", "--store", str(store), "--from", "2026-10-25", "--to", "2026-10-26"),
        *("--timezone", "Europe/Berlin", "--out", str(files / "out")),
    )
    assert code == 0, said
    period = json.loads((files / "out" / "report.json").read_text())["period"]
    assert (period["start"], period["end"]) == ("2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z")
    assert period["windows"] == 25


def test_a_store_without_anything_is_not_verified(tmp_path: Path, store: Path) -> None:
    code, said = call("rollup", "verify", "--store", str(tmp_path))
    assert code == 1
    assert "nothing was verified" in said
    assert call("rollup", "verify", "--store", str(store))[0] == 0


@pytest.mark.parametrize("preset", ["JmxExporter", "Custom"])
def test_interfaces_are_refused_with_presets_that_have_none(tmp_path: Path, preset: str) -> None:
    code, said = call(
        *("rollup", "run", "--prometheus", "http://127.0.0.1:1", "--from", "2h"),
        *("--out", str(tmp_path), "--preset", preset, "--interface", "ens5"),
    )
    assert code == 1
    assert "--interface is of presets NodeExporter and Cadvisor" in " ".join(said.split())


def test_days_are_read_where_period_and_rates_begin_with_days_of_utc(
    store: Path, files: Path
) -> None:
    """This store has no days, which the command says; with Berlin's midnight it takes hours."""
    card = files / "rates.yaml"
    arguments = ("report", "--store", str(store), "--from", "2026-10-01", "--to", "2026-11-01")
    for zone, expected in (("UTC", 1), ("Europe/Berlin", 0)):
        code, said = call(
            *arguments, *("--timezone", zone, "--rate-card", str(card)), "--out", str(files / zone)
        )
        assert code == expected, said
    assert DAY_MS == 24 * HOUR_MS
