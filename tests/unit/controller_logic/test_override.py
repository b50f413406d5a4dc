"""An override replaces what a tier promises, for those that it names, until it ends, and for no
other client.
"""

import re
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.worlds import (
    ALICE,
    BOB,
    MB,
    START_SECONDS,
    member,
    per_broker,
    per_partition,
    tier,
    total,
)
from tidegate_logic.contracts.overrides import Overridden, apply_overrides
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    Contract,
    Entity,
    Level,
    Member,
    Override,
    QuotaKey,
    RateForm,
    Tier,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.recurrence import DAYS, Recurrence, Window

LATER = START_SECONDS + 3600
NIGHTLY = Entity("alice", "nightly")


def override(key: str = "streaming/backfill", **said: object) -> Override:
    """An override of alice's rates to 20 MB/s fetched, unless something else is said."""
    reported: dict[str, object] = {"expires_at_seconds": LATER, "reason": "agreed", **said}
    if "entity" not in said and "level" not in said:
        reported["entity"] = ALICE
    return Override(key, **{"rates": per_partition(fetch=20 * MB), **reported})  # type: ignore[arg-type]


def applied(declared: Member, *overrides: Override, level: Level = Level.L1) -> Overridden:
    return apply_overrides((tier(declared, level=level),), overrides, START_SECONDS)


def only(overridden: Overridden) -> Member:
    assert overridden.tiers is not None
    (one,) = overridden.tiers[0].members
    return one


def reasons(overridden: Overridden) -> dict[str, list[Reason]]:
    return {
        key: [misfit.reason for misfit in found] for key, found in overridden.not_applicable.items()
    }


@pytest.mark.parametrize(
    ("contract", "rates", "becomes"),
    [
        (
            per_partition(1 * MB, 2 * MB),
            per_partition(20 * MB, 30 * MB),
            per_partition(20 * MB, 30 * MB),
        ),
        (
            per_partition(1 * MB, 2 * MB),
            per_partition(fetch=20 * MB),
            per_partition(20 * MB, 2 * MB),
        ),
        (per_partition(1 * MB, 2 * MB), total(20 * MB, 30 * MB), total(20 * MB, 30 * MB)),
        (per_partition(fetch=1 * MB), total(fetch=20 * MB), total(fetch=20 * MB)),
        (per_partition(fetch=1 * MB), per_broker(20 * MB, 30 * MB), per_broker(20 * MB, 30 * MB)),
        (
            per_partition(fetch=1 * MB),
            per_partition(produce=30 * MB),
            per_partition(1 * MB, 30 * MB),
        ),
        (None, per_broker(fetch=20 * MB), per_broker(fetch=20 * MB)),
    ],
)
def test_rates_that_are_set_stand_in_place_of_the_contracts_and_the_others_stay(
    contract: Contract | None, rates: Contract, becomes: Contract
) -> None:
    one = only(applied(member(ALICE, contract, "orders"), override(rates=rates)))
    assert one.contract is not None
    assert (replace(one.contract, override_only_keys=frozenset()), one.exempt, one.override) == (
        becomes,
        True,
        "streaming/backfill",
    )


def test_what_no_contract_gives_is_override_only() -> None:
    rates = override(rates=per_broker(20 * MB, 20 * MB))
    override_only_keys = {
        str(given): only(applied(member(ALICE, given), rates)).contract.override_only_keys
        for given in (None, per_broker(fetch=MB))
    }  # type: ignore[union-attr]
    assert override_only_keys == {
        "None": BYTE_RATE_KEYS,
        str(per_broker(fetch=MB)): {QuotaKey.PRODUCER_BYTE_RATE},
    }


def test_quotas_that_are_no_byte_rates_stay() -> None:
    contract = Contract(
        RateForm.TOTAL, 1 * MB, None, request_percentage=200, controller_mutations_per_second=5
    )
    changed = only(
        applied(member(ALICE, contract), override(rates=per_broker(fetch=2 * MB)))
    ).contract
    assert changed == Contract(
        RateForm.PER_BROKER, 2 * MB, None, request_percentage=200, controller_mutations_per_second=5
    )


def test_an_exemption_leaves_the_contract_and_forbids_throttling() -> None:
    declared = member(ALICE, per_partition(1 * MB), "orders")
    one = only(applied(declared, override(rates=None)))
    assert (one.contract, one.exempt, one.override) == (
        declared.contract,
        True,
        "streaming/backfill",
    )


@pytest.mark.parametrize(
    ("contract", "rates", "lost"),
    [
        (per_partition(1 * MB, 2 * MB), total(fetch=20 * MB), {"produce", "perPartition"}),
        (total(1 * MB, 2 * MB), per_broker(produce=20 * MB), {"fetch", "total"}),
        (total(fetch=1 * MB), per_broker(produce=20 * MB), {"fetch", "total"}),
    ],
)
def test_one_direction_in_another_form_changes_nothing_where_the_contract_has_the_other(
    contract: Contract, rates: Contract, lost: set[str]
) -> None:
    declared = member(ALICE, contract, "orders")
    overridden = applied(declared, override(rates=rates))
    assert only(overridden) == declared
    (misfit,) = overridden.not_applicable["streaming/backfill"]
    assert misfit.reason is Reason.OVERRIDE_UNFIT
    assert lost <= set(re.findall(r"\w+", misfit.message))


def test_a_rate_per_partition_fits_no_one_without_topics() -> None:
    declared = member(ALICE, total(1 * MB))
    overridden = applied(declared, override(rates=per_partition(20 * MB, 20 * MB)))
    assert only(overridden) == declared
    assert reasons(overridden) == {"streaming/backfill": [Reason.OVERRIDE_UNFIT]}


@pytest.mark.parametrize("other", [BOB, NIGHTLY, Entity(client_id="alice")])
def test_user_and_client_id_must_be_exactly_those_of_the_member(other: Entity) -> None:
    declared = member(other, per_partition(1 * MB), "orders")
    overridden = applied(declared, override())
    assert only(overridden) == declared
    assert not overridden.applied


def test_a_level_means_every_member_of_every_tier_of_it() -> None:
    tiers = (
        tier(member(ALICE, per_broker(1 * MB)), key="streaming/a", level=Level.L2),
        tier(
            member(BOB, per_broker(1 * MB)),
            member(NIGHTLY, None),
            key="streaming/b",
            level=Level.L2,
        ),
        tier(member(Entity("carol"), per_broker(1 * MB)), key="streaming/c", level=Level.L3),
    )
    overridden = apply_overrides(
        tiers, [override(level=Level.L2, rates=per_broker(5 * MB))], START_SECONDS
    )
    assert overridden.tiers is not None
    rates = {
        one.entity: one.contract and one.contract.fetch_bytes_per_second
        for each in overridden.tiers
        for one in each.members
    }
    assert rates == {ALICE: 5 * MB, BOB: 5 * MB, NIGHTLY: 5 * MB, Entity("carol"): 1 * MB}
    assert set(overridden.applied) == {ALICE, BOB, NIGHTLY}


@pytest.mark.parametrize("level_is_older", [True, False])
def test_what_is_said_of_a_member_goes_before_what_is_said_of_its_level(
    *, level_is_older: bool
) -> None:
    single, level = (
        override("streaming/single"),
        override("streaming/level", level=Level.L1, rates=per_partition(fetch=5 * MB)),
    )
    declared = member(ALICE, per_partition(1 * MB), "orders")
    overridden = applied(declared, *((level, single) if level_is_older else (single, level)))
    assert only(overridden).override == "streaming/single"
    assert reasons(overridden) == {"streaming/level": [Reason.OVERRULED]}
    assert "streaming/single" in overridden.not_applicable["streaming/level"][0].message


def test_of_two_for_one_member_the_older_goes_before_the_younger() -> None:
    declared = member(ALICE, per_partition(1 * MB), "orders")
    overridden = applied(declared, override("streaming/z"), override("streaming/a", rates=None))
    assert only(overridden).override == "streaming/z"
    assert reasons(overridden) == {"streaming/a": [Reason.OVERRULED]}


def test_one_that_does_not_fit_leaves_the_member_to_the_next() -> None:
    declared = member(ALICE, per_partition(1 * MB, 1 * MB), "orders")
    overridden = applied(
        declared,
        override("streaming/unfit", rates=total(fetch=9 * MB)),
        override("streaming/level", level=Level.L1),
    )
    assert only(overridden).override == "streaming/level"
    assert reasons(overridden) == {"streaming/unfit": [Reason.OVERRIDE_UNFIT]}


def test_of_members_that_overlap_only_the_first_is_overridden() -> None:
    first, second = member(ALICE, per_broker(1 * MB)), member(ALICE, per_broker(2 * MB))
    tiers = (tier(first, key="streaming/a"), tier(second, key="streaming/b"))
    overridden = apply_overrides(tiers, [override(rates=per_broker(5 * MB))], START_SECONDS)
    assert overridden.tiers is not None
    assert overridden.tiers[1].members == (second,)
    assert overridden.tiers[0].members[0].override == "streaming/backfill"


@pytest.mark.parametrize(("ends_in_seconds", "lasts"), [(0.001, True), (0.0, False), (-1.0, False)])
def test_it_lasts_until_its_end_by_the_clock_of_the_pass(
    ends_in_seconds: float, *, lasts: bool
) -> None:
    declared = member(ALICE, per_partition(1 * MB), "orders")
    overridden = applied(declared, override(expires_at_seconds=START_SECONDS + ends_in_seconds))
    assert (only(overridden) != declared) is lasts
    assert overridden.next_change_seconds == (START_SECONDS + ends_in_seconds if lasts else None)


def test_a_clock_that_goes_back_behind_the_end_brings_it_back() -> None:
    declared = (tier(member(ALICE, per_partition(1 * MB), "orders")),)
    ends = override(expires_at_seconds=START_SECONDS)
    assert not apply_overrides(declared, [ends], START_SECONDS + 1).applied
    assert apply_overrides(declared, [ends], START_SECONDS - 1).applied


def test_the_first_end_of_all_that_last_is_reported_also_of_those_that_change_nothing() -> None:
    soon = override("streaming/bob-only", entity=BOB, expires_at_seconds=START_SECONDS + 5)
    overridden = applied(member(ALICE, per_partition(1 * MB), "orders"), override(), soon)
    assert overridden.next_change_seconds == START_SECONDS + 5


def test_tiers_that_are_not_known_stay_unknown() -> None:
    overridden = apply_overrides(None, [override()], START_SECONDS)
    assert (overridden.tiers, overridden.next_change_seconds) == (None, LATER)


RATES = st.none() | st.integers(1024, 2**40)
CONTRACTS = st.builds(
    Contract, st.sampled_from(RateForm), RATES, RATES, st.none() | st.integers(1, 400)
)
ENTITIES = st.sampled_from([ALICE, BOB, NIGHTLY, Entity(client_id="batch")])
MEMBERS = st.builds(
    Member, st.just("m"), ENTITIES, st.sampled_from([(), ("orders",)]), st.none() | CONTRACTS
)
TIERS = st.lists(
    st.builds(
        Tier,
        st.just("streaming/t"),
        st.sampled_from(Level),
        st.lists(MEMBERS, max_size=4).map(tuple),
    ),
    max_size=3,
)
SOME_RATES = st.builds(Contract, st.sampled_from(RateForm), RATES, RATES).filter(
    lambda rates: not rates.is_empty
)
ENDS = st.floats(START_SECONDS - 10, START_SECONDS + 10)
OVERRIDES = st.lists(
    st.one_of(
        st.builds(
            Override,
            st.uuids().map(str),
            ENDS,
            st.just("why"),
            entity=ENTITIES,
            rates=st.none() | SOME_RATES,
        ),
        st.builds(
            Override,
            st.uuids().map(str),
            ENDS,
            st.just("why"),
            level=st.sampled_from(Level),
            rates=st.none() | SOME_RATES,
        ),
    ),
    max_size=5,
)


@given(tiers=TIERS.map(tuple), overrides=OVERRIDES)
def test_whoever_is_not_named_keeps_exactly_what_was_declared(
    tiers: tuple[Tier, ...], overrides: list[Override]
) -> None:
    overridden = apply_overrides(tiers, overrides, START_SECONDS)
    assert overridden.tiers is not None
    lasting = [one for one in overrides if one.expires_at_seconds > START_SECONDS]
    for before, after in zip(tiers, overridden.tiers, strict=True):
        for was, now in zip(before.members, after.members, strict=True):
            named = [one.key for one in lasting if one.names(before, was)]
            assert now == was or now.override in named


@given(tiers=TIERS.map(tuple), overrides=OVERRIDES)
def test_no_byte_rate_is_ever_lost_and_none_changes_that_was_not_set(
    tiers: tuple[Tier, ...], overrides: list[Override]
) -> None:
    overridden = apply_overrides(tiers, overrides, START_SECONDS)
    assert overridden.tiers is not None
    for before, after in zip(tiers, overridden.tiers, strict=True):
        for was, now in zip(before.members, after.members, strict=True):
            if was.contract is None or was == now:
                continue
            assert now.contract is not None
            rates = overridden.applied[now.entity].rates
            for direction in ("fetch_bytes_per_second", "produce_bytes_per_second"):
                said = getattr(rates, direction) if rates is not None else None
                assert getattr(now.contract, direction) == (
                    getattr(was.contract, direction) if said is None else said
                )
                unchanged = said is None and getattr(was.contract, direction) is not None
                assert not unchanged or now.contract.form is was.contract.form


@given(tiers=TIERS.map(tuple), overrides=OVERRIDES)
def test_everybody_named_is_either_overridden_or_reported_why_not(
    tiers: tuple[Tier, ...], overrides: list[Override]
) -> None:
    overridden = apply_overrides(tiers, overrides, START_SECONDS)
    first = {one.entity: (each, one) for each in reversed(tiers) for one in reversed(each.members)}
    for said in overrides:
        named = [
            one
            for each, one in first.values()
            if said.names(each, one) and said.expires_at_seconds > START_SECONDS
        ]
        carried = [entity for entity, by in overridden.applied.items() if by.key == said.key]
        assert len(named) == len(carried) + len(overridden.not_applicable.get(said.key, ()))


@given(tiers=TIERS.map(tuple), overrides=OVERRIDES)
def test_when_all_are_over_everything_is_as_declared(
    tiers: tuple[Tier, ...], overrides: list[Override]
) -> None:
    assert apply_overrides(tiers, overrides, START_SECONDS + 11) == Overridden(tiers)


BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def at(wall: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> float:
    return datetime.fromisoformat(wall).replace(tzinfo=zone, fold=fold).timestamp()


def nightly(
    begin: str = "22:00", end: str = "06:00", zone: ZoneInfo = BERLIN, days: str = "", **said: Any
) -> Override:
    hours = [int(clock[:2]) * 60 + int(clock[3:]) for clock in (begin, end)]
    chosen = frozenset(map(DAYS.index, days.split())) if days else frozenset(range(7))
    times = Recurrence(chosen, *hours, zone.key)
    return override(**{"recurrence": times, "expires_at_seconds": at("2027-06-01T00:00"), **said})


def test_it_begins_at_its_start_and_both_moments_are_known_before() -> None:
    begins = override(starts_at_seconds=START_SECONDS + 60)
    declared = (tier(member(ALICE, per_partition(1 * MB), "orders")),)
    for now, lasts, change in (
        (START_SECONDS, False, START_SECONDS + 60),
        (START_SECONDS + 59.9, False, START_SECONDS + 60),
        (START_SECONDS + 60, True, LATER),
        (LATER, False, None),
    ):
        overridden = apply_overrides(declared, [begins], now)
        assert (bool(overridden.applied), overridden.next_change_seconds) == (lasts, change)


def test_the_first_beginning_is_reported_while_tiers_are_not_known() -> None:
    begins = override(starts_at_seconds=START_SECONDS + 60)
    assert apply_overrides(None, [begins], START_SECONDS).next_change_seconds == START_SECONDS + 60


@pytest.mark.parametrize(
    ("one", "now", "begin", "end"),
    [
        # across midnight, and across the end of a month and of a year
        (nightly(), "2026-11-30T23:30", "2026-11-30T22:00", "2026-12-01T06:00"),
        (nightly(), "2026-12-31T12:00", "2026-12-31T22:00", "2027-01-01T06:00"),
        (nightly(days="Sat"), "2027-01-31T12:00", "2027-02-06T22:00", "2027-02-07T06:00"),
        # windows that meet are one time
        (
            nightly("00:00", "00:00", days="Mon Tue Wed Thu Fri"),
            "2026-12-02T12:00",
            "2026-12-02T00:00",
            "2026-12-05T00:00",
        ),
        (nightly("00:00", "00:00"), "2026-12-02T12:00", "2026-12-02T00:00", "2027-06-01T00:00"),
        # it ends for good in the middle of a night, and begins in the middle of one
        (nightly(), "2027-05-31T23:00", "2027-05-31T22:00", "2027-06-01T00:00"),
        (
            nightly(starts_at_seconds=at("2026-12-02T03:00")),
            "2026-12-01T12:00",
            "2026-12-02T03:00",
            "2026-12-02T06:00",
        ),
        # the hour that is missing, and the one that comes twice
        (nightly("02:30", "06:00"), "2027-03-28T01:00", "2027-03-28T03:00", "2027-03-28T06:00"),
        (nightly("22:00", "02:30"), "2027-03-28T01:00", "2027-03-27T22:00", "2027-03-28T03:00"),
    ],
)
def test_the_time_that_it_is_in_or_the_next_one(
    one: Override, now: str, begin: str, end: str
) -> None:
    window = one.window(at(now))
    assert window == Window(at(begin), at(end))
    assert one.lasts(at(now)) is (begin <= now)
    assert one.until_seconds(at(now)) == (at(end) if begin <= now else one.expires_at_seconds)


def test_the_hour_that_comes_twice_is_in_force_both_times() -> None:
    for zone, day, hour in ((BERLIN, "2026-10-25", "02"), (NEW_YORK, "2026-11-01", "01")):
        one = nightly("22:00", f"{hour}:30", zone)
        for fold in (0, 1):
            assert one.lasts(at(f"{day}T{hour}:29:59", zone, fold))
        assert one.window(at(f"{day}T00:30", zone)) == Window(
            at(f"{day}T22:00", zone) - 25 * 3600,
            at(f"{day}T{hour}:30", zone, fold=1),
        )
        begins = nightly(f"{hour}:30", "06:00", zone)
        assert begins.lasts(at(f"{day}T{hour}:30", zone, fold=0))
        assert not begins.lasts(at(f"{day}T{hour}:29", zone, fold=0))


def test_it_is_over_with_the_last_time_before_its_end() -> None:
    ended = nightly(expires_at_seconds=at("2026-12-01T12:00"))
    assert ended.window(at("2026-12-01T05:59")) is not None
    assert ended.window(at("2026-12-01T06:00")) is None


@given(
    st.frozensets(st.integers(0, 6), min_size=1),
    st.integers(0, 1439),
    st.integers(0, 1439),
    st.sampled_from((BERLIN, NEW_YORK)),
    st.integers(0, 60 * 24 * 400),
)
def test_it_lasts_whenever_its_recurrence_has_a_window_and_changes_when_it_says(
    days: frozenset[int], begin: int, end: int, zone: ZoneInfo, minute: int
) -> None:
    times = Recurrence(days, begin, end, zone.key)
    one = override(recurrence=times, expires_at_seconds=at("2028-06-01T00:00"))
    now = at("2026-01-01T00:00") + 60 * minute
    window = one.window(now)
    assert window is not None
    assert window.end_seconds > now
    assert one.lasts(now) == window.has(now) == (times.window_at(now) is not None)
    turn = window.end_seconds if window.has(now) else window.begin_seconds
    assert one.lasts(turn - 1) is window.has(now)
    assert one.lasts(turn) is not window.has(now)
