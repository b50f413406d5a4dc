"""A closed month keeps its figures, whatever is published later; the difference is reported."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from time import sleep
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rollup.tables.bucket import Bucket, store_in
from tests.unit.rollup.tables.usage import DAY, IN_NO_TIER, brokers_of, coarser, put, usage_5m
from tidegate.errors import Conflict, InvalidResource, NotFound, TidegateError
from tidegate.report.closing import (
    Closed,
    Month,
    adjustments,
    close_month,
    closed_months,
    closed_months_words,
    corrections,
    read_closed,
    require_digests,
)
from tidegate.report.figures import Correction
from tidegate.report.rate_card import RateCard, Rates, amount_of
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables.format import UsageDamaged
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import GRACE_MS, Retention, retire, sweep
from tidegate_logic.words import rfc3339_ms

NOVEMBER = Month.named("2026-11")
OVER = NOVEMBER.end_ms + 2 * HOUR_MS
GIB = 2**30
HOURS = (DAY, DAY + HOUR_MS)
CARD = RateCard.flat({"fetch": Decimal("0.02"), "produce": Decimal("0.01")}, "EUR")
DECEMBER = NOVEMBER.after()


def publish_hour(store: UsageStore, run: str, at_ms: int, *, more_of_etl: int = 0) -> None:
    usage = coarser(usage_5m(at_ms), "usage_1h", fill=IN_NO_TIER)
    rows = usage.to_pylist()
    for row in rows:
        is_that = (row["user"], row["broker"], row["direction"]) == ("etl", 1, "fetch")
        row["bytes"] += more_of_etl if is_that else 0
    usage = usage.from_pylist(rows, schema=usage.schema)
    put(store, run, "usage_1h", usage, start_ms=at_ms, now_ms=OVER)
    brokers = brokers_of(usage, "broker_1h")
    put(store, run, "broker_1h", brokers, start_ms=at_ms, now_ms=OVER)


@pytest.fixture
def bucket() -> Bucket:
    """Two hours of November."""
    bucket = Bucket()
    for at_ms in HOURS:
        publish_hour(store_in(bucket), "a", at_ms)
    return bucket


@pytest.fixture
def store(bucket: Bucket) -> UsageStore:
    store = store_in(bucket)
    close_month(store, NOVEMBER, card=CARD, now_ms=OVER, with_gaps=True)
    return store


@pytest.mark.parametrize(
    ("zone", "start", "hours"),
    [
        pytest.param(UTC, "2026-10-01T00:00:00Z", 744, id="UTC"),
        pytest.param(ZoneInfo("Europe/Berlin"), "2026-09-30T22:00:00Z", 745, id="winter begins"),
    ],
)
def test_a_month_is_that_of_its_time_zone(zone: ZoneInfo, start: str, hours: int) -> None:
    month = Month.named("2026-10", zone)

    assert rfc3339_ms(month.start_ms) == start
    assert (month.end_ms - month.start_ms) // HOUR_MS == hours


@pytest.mark.parametrize("name", ["2026-13", "October", "2026", ""])
def test_what_is_no_month_is_refused(name: str) -> None:
    with pytest.raises(InvalidResource, match="2026-10"):
        Month.named(name)


def test_a_zone_of_half_hours_is_refused() -> None:
    with pytest.raises(InvalidResource, match="Kolkata"):
        Month.named("2026-10", ZoneInfo("Asia/Kolkata"))


def test_a_closed_month_has_what_every_client_moved_and_a_checksum(store: UsageStore) -> None:
    closed = read_closed(store, "2026-11")
    rows = store.rows("usage_1h").to_pylist()
    assert sum(one.bytes for one in closed.usage) == sum(row["bytes"] for row in rows)
    assert len(closed.usage) == len({(r["user"], r["broker"], r["direction"]) for r in rows})
    assert sum(one.unattributed_bytes for one in closed.counted) == 5 * 2 * 2 * len(HOURS)
    assert closed_months(store) == ["2026-11"]
    assert adjustments(store, closed).rows == ()


def test_what_is_published_again_later_is_an_adjustment_and_the_figures_stay(
    store: UsageStore,
) -> None:
    before = read_closed(store, "2026-11")
    publish_hour(store, "b", HOURS[1], more_of_etl=100 * GIB)
    made = adjustments(store, read_closed(store, "2026-11"))
    assert made.changed == ("2026-11-21T01",)
    (row,) = made.rows
    assert (row.user, row.broker, row.direction) == ("etl", 1, "fetch")
    assert row.difference == 100 * GIB
    assert read_closed(store, "2026-11") == before
    document = json.loads(json.dumps(made.document()))
    assert document["adjustments"][0]["difference"] == 100 * GIB
    (line,) = document["corrections"]
    assert (line["bill"], line["amount"], line["currency"]) == ("2026-12", "2.00", "EUR")


def test_an_hour_that_has_the_bytes_of_then_again_is_no_adjustment(
    store: UsageStore,
) -> None:
    publish_hour(store, "b", HOURS[0], more_of_etl=1)
    publish_hour(store, "c", HOURS[0])
    made = adjustments(store, read_closed(store, "2026-11"))
    assert (made.changed, made.rows) == (("2026-11-21T00",), ())
    publish_hour(store, "d", HOURS[1])
    assert adjustments(store, read_closed(store, "2026-11")).changed == ("2026-11-21T00",)


def test_a_month_is_closed_once(store: UsageStore, bucket: Bucket) -> None:
    objects = dict(bucket.objects)
    with pytest.raises(InvalidResource, match="closed already"):
        close_month(store, NOVEMBER, card=RateCard(), now_ms=OVER + DAY_MS, with_gaps=True)
    assert bucket.objects == objects


def test_a_month_is_not_closed_before_late_samples_came(bucket: Bucket) -> None:
    with pytest.raises(InvalidResource, match="2026-12-01T02:00:00Z"):
        close_month(store_in(bucket), NOVEMBER, card=RateCard(), now_ms=OVER - 1, with_gaps=True)


def test_hours_that_are_not_published_are_counted(bucket: Bucket) -> None:
    with pytest.raises(InvalidResource, match="718 of 720 hours"):
        close_month(store_in(bucket), NOVEMBER, card=RateCard(), now_ms=OVER)
    assert closed_months(store_in(bucket)) == []


def test_nothing_published_is_nothing_to_close() -> None:
    with pytest.raises(NotFound, match="nothing to close"):
        close_month(store_in(Bucket()), NOVEMBER, card=RateCard(), now_ms=OVER, with_gaps=True)


def test_a_figure_that_somebody_changed_is_found(store: UsageStore, bucket: Bucket) -> None:
    path = "_closed/2026-11.json"
    (found,) = [each for each in bucket.objects if each.endswith(path)]
    content, at_ms = bucket.objects[found]
    document = json.loads(content)
    document["usage"][0]["bytes"] += 1
    bucket.objects[found] = (json.dumps(document).encode(), at_ms)
    with pytest.raises(UsageDamaged, match="checksum"):
        read_closed(store, "2026-11")


def test_a_month_that_is_not_closed_has_no_adjustments(store: UsageStore) -> None:
    with pytest.raises(NotFound, match="closed: 2026-11"):
        read_closed(store, "2026-10")


def test_retention_is_no_correction_and_a_clean_up_leaves_what_is_closed(
    store: UsageStore,
) -> None:
    later = OVER + 500 * DAY_MS
    retire(store, Retention(30, 400), run_id="c", now_ms=later)
    sweep(store, now_ms=later + 2 * GRACE_MS)
    closed = read_closed(store, "2026-11")
    assert closed.usage
    with pytest.raises(NotFound, match="out of retention"):
        adjustments(store, closed)


def test_a_report_of_a_closed_time_says_so(store: UsageStore) -> None:
    (said,) = closed_months_words(store, DAY, DAY + DAY_MS)
    assert "`tidegate report adjustments 2026-11`" in said
    assert "2026-12-01T02:00:00Z" in said
    assert list(closed_months_words(store, NOVEMBER.end_ms, NOVEMBER.end_ms + DAY_MS)) == []


# Corrections: lines of the next open bill, each of them billed once.


def lines(found: Sequence[Correction]) -> list[tuple[str, str, int, str]]:
    return [(one.corrected_month, one.user, one.bytes // GIB, str(one.amount)) for one in found]


def close(store: UsageStore, month: Month, card: RateCard = CARD) -> Closed:
    """Close a month of which one hour is published."""
    publish_hour(store, "c", month.start_ms)
    return close_month(store, month, card=card, now_ms=month.end_ms + 2 * HOUR_MS, with_gaps=True)


def test_a_correction_is_on_the_bill_of_the_next_month_that_is_open(store: UsageStore) -> None:
    publish_hour(store, "b", HOURS[1], more_of_etl=100 * GIB)
    assert lines(corrections(store, DECEMBER)) == [("2026-11", "etl", 100, "2.00")]
    assert corrections(store, DECEMBER.after()) == ()
    assert corrections(store, NOVEMBER) == ()


def test_a_closed_bill_keeps_its_corrections_and_the_next_one_has_what_came_after_it(
    store: UsageStore,
) -> None:
    publish_hour(store, "b", HOURS[1], more_of_etl=100 * GIB)
    december = close(store, DECEMBER)
    assert lines(december.corrections) == [("2026-11", "etl", 100, "2.00")]
    publish_hour(store, "d", HOURS[1], more_of_etl=150 * GIB)
    publish_hour(store, "d", DECEMBER.start_ms, more_of_etl=-50 * GIB)
    assert lines(corrections(store, DECEMBER)) == [("2026-11", "etl", 100, "2.00")]
    assert lines(corrections(store, DECEMBER.after())) == [
        ("2026-11", "etl", 50, "1.00"),
        ("2026-12", "etl", -50, "-1.00"),
    ]
    made = adjustments(store, read_closed(store, "2026-11"))
    assert [(bill, str(one.amount)) for bill, one in made.billed] == [("2026-12", "2.00")]
    assert (made.next_bill, lines(made.open)) == ("2027-01", [("2026-11", "etl", 50, "1.00")])


@given(st.lists(st.tuples(st.booleans(), st.integers(-(10**6), 10**12)), max_size=6))
@settings(max_examples=settings().max_examples // 4, deadline=None)
def test_bills_add_up_to_what_the_tables_have_whenever_they_are_closed(
    steps: list[tuple[bool, int]],
) -> None:
    """A step publishes the closed month's hour again, and closes the next month or not."""
    store = store_in(Bucket())
    publish_hour(store, "a", HOURS[0])
    first = close_month(store, NOVEMBER, card=CARD, now_ms=OVER, with_gaps=True)
    month = DECEMBER
    for number, (closes, more) in enumerate(steps):
        publish_hour(store, f"s{number}", HOURS[0], more_of_etl=more)
        if closes:
            close(store, month)
            month = month.after()
    made = adjustments(store, read_closed(store, "2026-11"))
    carried = [*first.charges, *(one for _, one in made.billed), *made.open]
    usage = store.rows("usage_1h", NOVEMBER.start_ms, NOVEMBER.end_ms).to_pylist()
    assert sum(one.bytes for one in carried) == sum(row["bytes"] for row in usage)
    by_client: dict[tuple[str, str], int] = {}
    for row in usage:
        who = row["user"], row["direction"]
        by_client[who] = by_client.get(who, 0) + row["bytes"]
    assert sum(one.amount for one in carried) == sum(
        amount_of(count, CARD.rates[0].price(way)) or Decimal(0)  # type: ignore[arg-type]
        for (_, way), count in by_client.items()
    )


def test_a_shared_cost_is_shared_anew_and_corrections_add_up_to_nothing(bucket: Bucket) -> None:
    store = store_in(bucket)
    card = RateCard(rates=[Rates(cost_per_month=Decimal(1000), share_by="Bytes")], currency="EUR")
    close_month(store, NOVEMBER, card=card, now_ms=OVER, with_gaps=True)
    publish_hour(store, "b", HOURS[1], more_of_etl=2**42)
    found = corrections(store, DECEMBER)
    assert len(found) > 2
    assert sum(one.amount for one in found) == 0
    assert max(found, key=lambda one: one.amount).user == "etl"


def test_a_month_that_was_closed_without_prices_has_no_corrections(bucket: Bucket) -> None:
    store = store_in(bucket)
    close_month(store, NOVEMBER, card=RateCard(), now_ms=OVER, with_gaps=True)
    publish_hour(store, "b", HOURS[1], more_of_etl=100 * GIB)
    assert corrections(store, DECEMBER) == ()
    assert len(adjustments(store, read_closed(store, "2026-11")).rows) == 1


def test_months_of_one_store_are_closed_in_one_time_zone(store: UsageStore) -> None:
    berlin = Month.named("2026-12", ZoneInfo("Europe/Berlin"))
    with pytest.raises(InvalidResource, match="--timezone UTC"):
        close_month(store, berlin, card=CARD, now_ms=berlin.end_ms + DAY_MS, with_gaps=True)
    assert corrections(store, berlin) == ()


def test_retention_is_no_correction_on_a_bill(store: UsageStore) -> None:
    publish_hour(store, "b", HOURS[1], more_of_etl=100 * GIB)
    retire(store, Retention(30, 400), run_id="c", now_ms=OVER + 500 * DAY_MS)
    assert corrections(store, DECEMBER) == ()


def test_a_file_of_another_version_is_no_closed_month(store: UsageStore, bucket: Bucket) -> None:
    (found,) = [each for each in bucket.objects if each.endswith("_closed/2026-11.json")]
    content, at_ms = bucket.objects[found]
    bucket.objects[found] = (content.replace(b'"version": 3', b'"version": 4'), at_ms)
    with pytest.raises(UsageDamaged, match="version 2 or 3"):
        read_closed(store, "2026-11")


# Of two processes that close one month at the same time one wins, and the other says so.


def closing(store: UsageStore, who: str, wait: Callable[[float], None] = sleep) -> Closed:
    return close_month(
        store, NOVEMBER, card=CARD, now_ms=OVER, closed_by=who, with_gaps=True, wait=wait
    )


def attempt(store: UsageStore, who: str, ended: dict[str, Closed | TidegateError]) -> None:
    try:
        ended[who] = closing(store, who, wait=lambda _: None)
    except TidegateError as error:
        ended[who] = error


def require_one_winner(store: UsageStore, ended: Mapping[str, Closed | TidegateError]) -> None:
    (winner,) = [one for one in ended.values() if isinstance(one, Closed)]
    found = read_closed(store, "2026-11")
    assert (found.sha256, found.closed_by) == (winner.sha256, winner.closed_by)
    lost = [one for one in ended.values() if isinstance(one, TidegateError)]
    assert len(lost) == len(ended) - 1
    for one in lost:
        assert "2026-11" in one.message
        assert "closed" in one.message or "nothing was written here" in one.message
    assert [one.path for one in store.storage.files("_closed")] == ["_closed/2026-11.json"]


def test_a_second_process_that_closes_the_month_within_the_first_changes_nothing() -> None:
    """The second one runs as a whole before each operation of the first, in a bucket."""
    number, finished = 0, False
    outcomes = set()
    while not finished:
        bucket = Bucket()
        store = store_in(bucket)
        publish_hour(store, "a", HOURS[0])
        ended: dict[str, Closed | TidegateError] = {}
        other = partial(attempt, store_in(bucket), "second", ended)
        bucket.before(number, other)
        attempt(store, "first", ended)
        bucket.calm()
        finished = "second" not in ended
        if not finished:
            require_one_winner(store, ended)
            outcomes.add(next(who for who, one in ended.items() if isinstance(one, Closed)))
        number += 1
    assert number > 10
    assert outcomes == {"first", "second"}


def test_no_request_that_fails_lets_a_second_process_replace_the_bill() -> None:
    """Each request of the first fails once; then the second one closes, or says what hinders it."""
    bucket = Bucket()
    publish_hour(store_in(bucket), "a", HOURS[0])
    published = dict(bucket.objects)
    bucket.operations = 0
    closing(store_in(bucket), "undisturbed")
    operations, outcomes = bucket.operations, set()
    for number in range(operations):
        bucket.objects = dict(published)
        ended: dict[str, Closed | TidegateError] = {}
        with bucket.failing(number, lambda: OSError("lost"), once=True):
            attempt(store_in(bucket), "first", ended)
        kept = bucket.objects.get("usage/tidegate/_closed/2026-11.json")
        attempt(store_in(bucket), "second", ended)
        found = bucket.objects.get("usage/tidegate/_closed/2026-11.json")
        assert kept is None or found == kept
        assert (found is None) == isinstance(ended["second"], Conflict)
        outcomes.add((isinstance(ended["first"], Closed), isinstance(ended["second"], Closed)))
    assert operations > 10
    # nothing failed that matters; it failed early; the write itself failed, and may still arrive
    assert outcomes == {(True, False), (False, True), (False, False)}


def test_a_claim_of_a_process_that_was_killed_is_named(bucket: Bucket) -> None:
    store = store_in(bucket)
    store.storage.write("_closed/2026-11.json.00.claim", b"")
    waited: list[float] = []
    with pytest.raises(Conflict, match=r"delete _closed/2026-11\.json\.00\.claim and try again"):
        closing(store, "x")
    store.storage.delete(["_closed/2026-11.json.00.claim"])
    store.storage.write("_closed/2026-11.json.zz.claim", b"")
    with pytest.raises(Conflict, match=r"zz\.claim"):
        closing(store, "x", wait=waited.append)
    assert sum(waited) >= 5
    assert closed_months(store) == []
    store.storage.delete(["_closed/2026-11.json.zz.claim"])
    assert closing(store, "x").closed_by == "x"


def test_of_many_processes_on_one_disk_exactly_one_closes_the_month(tmp_path: Path) -> None:
    store = UsageStore.at(str(tmp_path))
    publish_hour(store, "a", HOURS[0])
    ended: dict[str, Closed | TidegateError] = {}
    together = Barrier(4)

    def run(who: str) -> None:
        own = UsageStore.at(str(tmp_path))
        together.wait()
        attempt(own, who, ended)

    threads = [Thread(target=run, args=(f"process {number}",)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(ended) == 4
    require_one_winner(store, ended)


def test_a_digest_that_was_kept_elsewhere_finds_a_file_that_was_replaced(
    store: UsageStore, bucket: Bucket
) -> None:
    kept = read_closed(store, "2026-11").sha256
    require_digests(store, {"2026-11": kept})
    (found,) = [each for each in bucket.objects if each.endswith("_closed/2026-11.json")]
    del bucket.objects[found]
    closing(store, "someone else")  # a sound file, with a checksum of its own
    assert read_closed(store, "2026-11").closed_by == "someone else"
    with pytest.raises(UsageDamaged, match=kept):
        require_digests(store, {"2026-11": kept})
    with pytest.raises(NotFound, match="2026-12 is not closed"):
        require_digests(store, {"2026-12": kept})


def test_a_disk_without_second_names_has_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = UsageStore.at(str(tmp_path))
    publish_hour(store, "a", HOURS[0])

    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("tidegate.rollup.tables.storage.os.link", refused)
    assert closing(store, "x").closed_by == "x"
    assert not store.storage.create("_closed/2026-11.json", b"other")
    assert read_closed(store, "2026-11").closed_by == "x"
    assert [path.name for path in (tmp_path / "_closed").iterdir()] == ["2026-11.json"]
