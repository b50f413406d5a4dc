"""Months that were closed before 0.2 keep their FOCUS rows to the byte; new ids begin after them."""

import csv
import io
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.report.closed_store import (
    FORMER,
    FORMULA,
    NOVEMBER,
    OCTOBER,
    POLICY,
    ZONE,
    call,
    files_of,
    publish_and_close,
    publish_hour,
)
from tests.unit.report.focus_rules import problems
from tidegate.report.closing import encoded, read_closed
from tidegate.rollup.tables.format import UsageDamaged
from tidegate.rollup.tables.store import UsageStore


@pytest.fixture
def files(tmp_path: Path) -> Sequence[str]:
    return files_of(tmp_path)


@pytest.fixture
def usage(tmp_path: Path, files: Sequence[str]) -> Path:
    """The store of `publish_and_close` as the version before 0.2 closed it."""
    usage = tmp_path / "usage"
    publish_and_close(usage, files)
    for name in ("2026-10.json", "2026-11.json"):
        shutil.copy(FORMER / name, usage / "_closed" / name)
    return usage


def focus_of(usage: Path, month: str, options: Sequence[str]) -> bytes:
    out = usage.with_name("out")
    code, said = call(
        *("report", "--store", str(usage), "--month", month, *options, "--focus"),
        *("--out", str(out)),
    )
    assert code == 0, said
    return (out / "focus.csv").read_bytes()


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


@pytest.mark.parametrize("month", ["2026-10", "2026-11"])
def test_a_month_that_was_closed_before_keeps_its_rows_to_the_byte(
    usage: Path, files: Sequence[str], month: str
) -> None:
    assert focus_of(usage, month, files) == (FORMER / f"{month}.csv").read_bytes()
    without = (FORMER / f"{month}-without-policy.csv").read_bytes()
    assert focus_of(usage, month, ZONE) == without


def test_a_former_file_is_written_as_it_was_read(usage: Path) -> None:
    closed = read_closed(UsageStore.at(str(usage)), "2026-10")
    assert (closed.version, closed.closed_by, closed.invoice_id) == (2, "", "")
    assert closed.sha256 in (FORMER / "2026-10.json").read_text()
    assert encoded(closed) == (FORMER / "2026-10.json").read_bytes()


def test_new_ids_begin_with_the_first_month_that_is_not_closed(
    usage: Path, files: Sequence[str]
) -> None:
    december = "2026-12-05T10:00:00Z"
    publish_hour(usage, "run-1", december, gib_of_a=1, cluster="kafka-a")
    publish_hour(usage, "run-3", OCTOBER, gib_of_a=5, cluster="kafka-a")
    rows = rows_of(focus_of(usage, "2026-12", files))
    assert {row["ChargeClass"] for row in rows} == {"", "Correction"}
    assert {row["BillingAccountId"] for row in rows} == {"kafka-a"}
    assert {row["BillingAccountName"] for row in rows} == {POLICY}
    assert {row["x_KafkaClusterId"] for row in rows} == {"kafka-a"}
    assert {row["InvoiceId"] for row in rows} == {""}
    assert not any("@2026" in row["SkuPriceId"] for row in rows)


def test_a_former_month_is_not_taken_for_a_newer_one(usage: Path) -> None:
    """Its version is covered by the checksum of a newer file, and makes no difference to it."""
    path = usage / "_closed" / "2026-10.json"
    path.write_text(path.read_text().replace('"version": 2', '"version": 3'))
    with pytest.raises(UsageDamaged, match="checksum"):
        read_closed(UsageStore.at(str(usage)), "2026-10")


# Bills of today's version.


@pytest.fixture
def closed(tmp_path: Path, files: Sequence[str]) -> Path:
    usage = tmp_path / "usage"
    publish_and_close(usage, files)
    return usage


def test_a_closed_bill_has_an_invoice_id_of_its_month_and_digest(
    closed: Path, files: Sequence[str]
) -> None:
    month = read_closed(UsageStore.at(str(closed)), "2026-10")
    rows = rows_of(focus_of(closed, "2026-10", files))
    assert {row["InvoiceId"] for row in rows} == {f"2026-10-{month.sha256[:16]}"}
    content = focus_of(closed, "2026-11", files)
    assert problems(content.decode()) == []
    november = rows_of(content)
    assert {row["ChargeClass"] for row in november} == {"", "Correction"}
    assert len({row["InvoiceId"] for row in november}) == 1


def test_a_price_has_the_same_id_in_every_month(closed: Path, files: Sequence[str]) -> None:
    months = [rows_of(focus_of(closed, month, files)) for month in ("2026-10", "2026-11")]
    ids = [{row["SkuPriceId"] for row in rows} for rows in months]
    assert ids[0] == ids[1]
    assert "kafka-usage-fetch-L0" in ids[0]


def test_bills_of_two_clusters_with_policies_of_one_name_can_be_told_apart(
    tmp_path: Path, files: Sequence[str]
) -> None:
    bills = {}
    for cluster in ("kafka-a", "kafka-b"):
        usage = tmp_path / cluster / "usage"
        publish_and_close(usage, files, cluster=cluster)
        bills[cluster] = rows_of(focus_of(usage, "2026-10", files))
        page = (usage.with_name("out") / "report.html").read_text()
        assert cluster in page
        assert POLICY in page
        assert f'"kafkaClusterId": "{cluster}"' in (
            (usage.with_name("out") / "report.json").read_text()
        )
    for column in ("BillingAccountId", "ResourceId", "x_KafkaClusterId", "InvoiceId"):
        first, second = ({row[column] for row in rows} - {""} for rows in bills.values())
        assert first
        assert not first & second, column
    for column in ("SkuId", "SkuPriceId"):  # these must not depend on the account
        first, second = ({row[column] for row in rows} for rows in bills.values())
        assert first == second


def test_names_that_a_spreadsheet_would_run_are_quoted(closed: Path, files: Sequence[str]) -> None:
    rows = rows_of(focus_of(closed, "2026-10", files))
    hostile = [row for row in rows if row["x_KafkaClientId"]]
    assert {row["x_KafkaUser"] for row in hostile} == {f"'{FORMULA}"}
    assert {row["x_KafkaClientId"] for row in hostile} == {"'@loads"}


def test_a_bill_stays_whatever_becomes_of_the_tables_owner(
    closed: Path, files: Sequence[str]
) -> None:
    before = focus_of(closed, "2026-10", files)
    publish_hour(closed, "run-9", NOVEMBER, gib_of_a=9, cluster="")
    publish_hour(closed, "run-9", OCTOBER, gib_of_a=9, cluster="")
    assert focus_of(closed, "2026-10", files) == before


def test_who_closed_a_month_is_in_its_checksum(closed: Path) -> None:
    month = read_closed(UsageStore.at(str(closed)), "2026-10")
    assert month.closed_by
    other = replace(month, closed_by="someone else")
    assert other.sha256 != month.sha256
