"""`tidegate report close` and `adjustments`, and what a report asks of a closed month."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.report.closed_store import NOVEMBER, call, files_of, publish_and_close, publish_hour
from tidegate.report.closing import read_closed
from tidegate.rollup.tables.store import UsageStore

WRONG = "0" * 64


@pytest.fixture
def files(tmp_path: Path) -> Sequence[str]:
    return files_of(tmp_path)


@pytest.fixture
def usage(tmp_path: Path, files: Sequence[str]) -> Path:
    usage = tmp_path / "usage"
    publish_and_close(usage, files)
    return usage


def digest_of(usage: Path, month: str) -> str:
    return read_closed(UsageStore.at(str(usage)), month).sha256


def test_report_without_a_command_is_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("report")[0] == 1
    said = capsys.readouterr().err
    assert "Usage: tidegate report write" in said
    assert "Missing option '--store'" in said
    assert call("report", "--help")[0] == 0
    assert "adjustments" in capsys.readouterr().out


def test_close_says_who_closed_and_what_its_bill_is_named(
    tmp_path: Path, files: Sequence[str]
) -> None:
    usage = tmp_path / "usage"
    publish_hour(usage, "run-1", NOVEMBER, gib_of_a=2, cluster="kafka-a")
    code, said = call(
        *("report", "close", "2026-11", "--store", str(usage), *files, "--with-gaps"),
        *("--closed-by", "Jo Doe, ticket 12", "--output", "json"),
    )
    assert code == 0, said
    document = json.loads(said)
    digest = digest_of(usage, "2026-11")
    assert (document["closedBy"], document["sha256"]) == ("Jo Doe, ticket 12", digest)
    assert document["invoiceId"] == f"2026-11-{digest[:16]}"
    assert (document["kafkaClusterId"], document["policy"]) == ("kafka-a", "ns/shop")
    code, said = call("report", "adjustments", "2026-11", "--store", str(usage))
    assert code == 0, said
    assert "was closed at 2026-12-24T08:00:00Z by Jo Doe, ticket 12;" in said


def test_without_a_name_it_is_this_user_and_machine(usage: Path) -> None:
    assert "@" in read_closed(UsageStore.at(str(usage)), "2026-10").closed_by


def test_a_user_without_a_name_closes_by_its_number(
    tmp_path: Path, files: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose user is in no passwd file."""

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 10001")

    monkeypatch.setattr("tidegate.commands.report_close.getpass.getuser", unknown)
    monkeypatch.setattr("tidegate.commands.report_close.os.getuid", lambda: 10001)
    publish_and_close(tmp_path / "usage", files)
    closed = read_closed(UsageStore.at(str(tmp_path / "usage")), "2026-10")
    assert closed.closed_by.startswith("10001@")


@pytest.mark.parametrize("command", ["report", "adjustments"])
def test_another_digest_than_was_expected_is_refused(
    usage: Path, files: Sequence[str], tmp_path: Path, command: str
) -> None:
    out = tmp_path / "out"
    arguments = {
        "report": ("report", "--month", "2026-10", *files, "--out", str(out)),
        "adjustments": ("report", "adjustments", "2026-10"),
    }[command]
    asked = (*arguments, "--store", str(usage), "--expect-sha256")
    code, said = call(*asked, WRONG)
    assert code == 1
    assert f"{WRONG} was expected" in said
    assert not out.exists()
    code, said = call(*asked, digest_of(usage, "2026-10").upper())
    assert code == 0, said


def test_the_digest_of_another_month_is_given_with_its_name(
    usage: Path, files: Sequence[str], tmp_path: Path
) -> None:
    """November's bill carries corrections of October, so October's file matters to it."""
    asked = ("report", "--month", "2026-11", *files, "--store", str(usage), "--out", str(tmp_path))
    code, said = call(
        *asked,
        *("--expect-sha256", digest_of(usage, "2026-11")),
        *("--expect-sha256", f"2026-10={WRONG}"),
    )
    assert code == 1
    assert f"{WRONG} was expected" in said
    code, said = call(*asked, "--expect-sha256", f"2026-10={digest_of(usage, '2026-10')}")
    assert code == 0, said


@pytest.mark.parametrize("digest", ["abc", WRONG[:-1], f"October={WRONG}", f"{WRONG}0"])
def test_what_is_no_digest_is_refused(usage: Path, digest: str) -> None:
    code, said = call(
        *("report", "adjustments", "2026-10", "--store", str(usage), "--expect-sha256", digest)
    )
    assert code == 1
    assert "64 hexadecimal digits" in said


@pytest.mark.parametrize(
    ("period", "now", "warns"),
    [
        (("--month", "2026-11"), "2026-12-24T08:00:00Z", False),
        (("--month", "2026-11"), "2026-11-06T08:00:00Z", True),
        (("--from", "2026-11-05", "--to", "2026-11-06"), "2026-12-24T08:00:00Z", True),
    ],
)
def test_a_focus_file_of_no_whole_month_warns(
    tmp_path: Path, files: Sequence[str], period: tuple[str, ...], now: str, warns: bool
) -> None:
    usage = tmp_path / "usage"
    publish_hour(usage, "run-1", NOVEMBER, gib_of_a=2, cluster="kafka-a")
    asked = ("report", *period, "--store", str(usage), *files, "--out", str(tmp_path / "out"))
    code, said = call(*asked, "--focus", now=now)
    assert code == 0, said
    assert ("cost tools expect a whole month" in said) == warns
    assert "a whole month" not in call(*asked, now=now)[1]
