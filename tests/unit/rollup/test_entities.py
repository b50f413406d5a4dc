"""Who was a member of which tier when, from what runs saw and from the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rollup.tables.bucket import Bucket, store_in
from tidegate.rollup.entities import (
    ENTITIES,
    PATH,
    Entities,
    SpecChanges,
    client_of_entity,
    read_entities,
    tiers_of,
    write_entities,
)
from tidegate.rollup.labels import BUDGET_LABEL
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.tables.format import Owner, UsageDamaged, decode
from tidegate.rollup.terms.sources import PolicyMember, PolicyTerms, Trail, read_trail
from tidegate_logic.model import Budget, Entity, Level, Member, Policy, Tier

NOON = 1_795_219_200_000 + 12 * HOUR_MS
MINUTE = 60_000
NO_TRAIL = Trail()


def members(**tiers: str) -> Sequence[PolicyMember]:
    """Users by the tier that they are in."""
    found: dict[str, list[Member]] = {}
    for user, tier in tiers.items():
        found.setdefault(tier, []).append(Member(f"member-{user}", Entity(user)))
    return PolicyTerms.of(
        Policy("ns/shop", "uid"),
        [Tier(f"ns/{tier}", Level.L2, tuple(each)) for tier, each in found.items()],
    ).members


def tiers_at_end_of(entities: Entities, end_ms: int, now: Sequence[PolicyMember]) -> dict[str, str]:
    return {
        one.client[0]: one.tier.key.removeprefix("ns/") for one in entities.at_end_of(end_ms, now)
    }


FIRST, MOVED = members(alice="gold", bob="bulk"), members(alice="bulk", bob="bulk", carol="gold")


@pytest.fixture
def entities() -> Entities:
    """A first run three minutes after noon; alice changed tiers and carol came by three o'clock."""
    first = Entities().seen(FIRST, NOON + 3 * MINUTE, NO_TRAIL)
    return first.seen(MOVED, NOON + 3 * HOUR_MS + 3 * MINUTE, NO_TRAIL)


@pytest.mark.parametrize(
    ("hours", "tiers"),
    [
        pytest.param(1, {"alice": "gold", "bob": "bulk"}, id="after the first run"),
        pytest.param(3, {"alice": "gold", "bob": "bulk"}, id="before the change was seen"),
        pytest.param(4, {"alice": "bulk", "bob": "bulk", "carol": "gold"}, id="afterwards"),
    ],
)
def test_an_hour_has_the_tiers_that_were_valid_at_its_end(
    entities: Entities, hours: int, tiers: dict[str, str]
) -> None:
    assert tiers_at_end_of(entities, NOON + hours * HOUR_MS, MOVED) == tiers


def test_before_anything_was_written_down_tiers_are_the_first_known(entities: Entities) -> None:
    assert tiers_at_end_of(entities, NOON, MOVED) == {"alice": "gold", "bob": "bulk"}
    assert Entities().at_end_of(NOON, MOVED) is MOVED


def test_who_left_all_tiers_was_in_one_before(entities: Entities) -> None:
    left_ms = NOON + 9 * HOUR_MS + MINUTE
    now = members(bob="bulk", carol="gold")
    later = entities.seen(now, left_ms, NO_TRAIL)
    assert tiers_at_end_of(later, NOON + 9 * HOUR_MS, now)["alice"] == "bulk"
    assert "alice" not in tiers_at_end_of(later, NOON + 10 * HOUR_MS, now)
    back = later.seen(members(alice="gold"), left_ms + HOUR_MS, NO_TRAIL)
    assert tiers_at_end_of(back, NOON + 12 * HOUR_MS, now)["alice"] == "gold"
    assert tiers_at_end_of(back, NOON + 9 * HOUR_MS, now)["alice"] == "bulk"


def test_the_same_members_in_another_order_are_the_same_tiers() -> None:
    now = members(zoe="bulk", alice="gold", bob="bulk")
    first = Entities().seen(now, NOON, NO_TRAIL)
    assert tiers_of(first.at_end_of(NOON + HOUR_MS, now)) == tiers_of(now)
    assert tiers_of(first.at_end_of(NOON + HOUR_MS, now)) != tiers_of(members(zoe="gold"))


def test_looking_again_changes_nothing(entities: Entities) -> None:
    assert entities.seen(MOVED, NOON + 5 * HOUR_MS, NO_TRAIL) == entities


def test_a_member_of_the_same_tier_keeps_its_contract_of_now(entities: Entities) -> None:
    by_user = {one.client[0]: one for one in entities.at_end_of(NOON + HOUR_MS, MOVED)}
    assert by_user["bob"] is next(one for one in MOVED if one.client[0] == "bob")
    assert by_user["alice"].member.contract is None


def line(minute: int, user: str, tier: str) -> dict[str, object]:
    return {
        "event": "Audit",
        "kind": "write",
        "t": f"2026-11-21T{12 + minute // 60:02}:{minute % 60:02}:00.000Z",
        "policy": "ns/shop",
        "entity": f"user={user}",
        "key": "consumer_byte_rate",
        "from": 1,
        "to": 2,
        "outcome": "applied",
        "tier": f"ns/{tier}",
        "member": f"member-{user}",
        "level": "L2",
    }


TRAIL = read_trail(
    [line(1, "alice", "gold"), line(80, "alice", "bulk"), line(95, "alice", "bulk")],
    "ns/shop",
    end_ms=NOON + 99 * HOUR_MS,
)


def test_the_trail_has_the_moment_of_a_change() -> None:
    first = Entities().seen(FIRST, NOON + 3 * MINUTE, NO_TRAIL)
    later = first.seen(MOVED, NOON + 9 * HOUR_MS, TRAIL)
    assert tiers_at_end_of(later, NOON + HOUR_MS, MOVED)["alice"] == "gold"
    assert tiers_at_end_of(later, NOON + 2 * HOUR_MS, MOVED)["alice"] == "bulk"


def test_a_first_run_knows_what_the_trail_has() -> None:
    found = Entities().seen(MOVED, NOON + 9 * HOUR_MS, TRAIL)
    assert tiers_at_end_of(found, NOON + HOUR_MS, MOVED)["alice"] == "gold"
    assert tiers_at_end_of(found, NOON + 2 * HOUR_MS, MOVED)["alice"] == "bulk"


def test_the_table_has_a_row_for_each_membership_and_is_read_as_it_was_written(
    entities: Entities,
) -> None:
    bucket = Bucket()
    store = store_in(bucket)
    assert read_entities(store) == Entities()
    write_entities(store, entities, Owner("uid", "ns/shop", "kafka-a"))
    assert read_entities(store) == entities
    rows = decode(store.storage.read(PATH) or b"", where=PATH)
    assert rows.schema.remove_metadata() == ENTITIES
    alice = rows.filter(pc.equal(rows["user"], "alice")).to_pylist()
    assert [(row["cluster"], row["policy"], row["tier"]) for row in alice] == [
        ("kafka-a", "ns/shop", "ns/gold"),
        ("kafka-a", "ns/shop", "ns/bulk"),
    ]
    assert alice[0]["valid_to"] == alice[1]["valid_from"]
    assert alice[1]["valid_to"] is None


def test_a_file_of_something_else_is_refused() -> None:
    store = store_in(Bucket())
    store.storage.write(PATH, b"PAR1 not")
    with pytest.raises(UsageDamaged, match="entities"):
        read_entities(store)


@pytest.mark.parametrize("entity", [Entity("a"), Entity(None, "b"), Entity("a", "b, c=d")])
def test_a_client_is_read_from_what_audit_lines_name_it(entity: Entity) -> None:
    assert client_of_entity(str(entity)) == (str(entity.user or ""), str(entity.client_id or ""))


def test_what_is_no_entity_is_no_client() -> None:
    assert client_of_entity("topic=a") is None


def labelled(**teams: str) -> Sequence[PolicyMember]:
    """Users of one tier with a label."""
    found = tuple(
        Member(f"member-{user}", Entity(user), labels=(("team", team),))
        for user, team in teams.items()
    )
    return PolicyTerms.of(Policy("ns/shop", "uid"), [Tier("ns/gold", Level.L2, found)]).members


SEARCH = Budget("ns/search", {}, labels=frozenset({("team", "search")}))
LATER = Budget("ns/later", {}, tiers=frozenset({"ns/gold"}))


def budgeted(*budgets: Budget, known: bool = True) -> PolicyTerms:
    """Alice of team search and bob of none, in one tier, under these budgets."""
    found = (
        Member("alice", Entity("alice"), labels=(("team", "search"),)),
        Member("bob", Entity("bob")),
    )
    gold = Tier("ns/gold", Level.L2, found)
    return PolicyTerms.of(Policy("ns/shop", "uid"), [gold], budgets=budgets if known else None)


def budgets_of(members: Sequence[PolicyMember]) -> list[str | None]:
    return [dict(one.member.labels).get(BUDGET_LABEL) for one in members]


def test_a_member_has_its_budget_as_a_label_and_of_two_the_older_one() -> None:
    assert budgets_of(budgeted(SEARCH).members) == ["search", None]
    assert budgets_of(budgeted(SEARCH, LATER).members) == ["search", "later"]
    assert budgets_of(budgeted(LATER, SEARCH).members) == ["later", "later"]
    assert dict(budgeted(SEARCH).members[0].member.labels)["team"] == "search"


def test_without_budgets_labels_are_those_of_the_tiers() -> None:
    assert budgets_of(budgeted().members) == [None, None]
    assert Entities().seen(budgeted().members, NOON, NO_TRAIL).memberships[1].labels == "{}"


def test_a_budget_counts_from_the_run_that_saw_it_to_the_one_that_did_not() -> None:
    with_it, without = budgeted(SEARCH).members, budgeted().members
    entities = (
        Entities()
        .seen(without, NOON, NO_TRAIL)
        .seen(with_it, NOON + 2 * HOUR_MS, NO_TRAIL)
        .seen(without, NOON + 4 * HOUR_MS, NO_TRAIL)
    )
    found = [
        budgets_of(entities.at_end_of(NOON + hours * HOUR_MS, without))[0] for hours in (2, 3, 5)
    ]
    assert found == [None, "search", None]


def test_budgets_that_are_not_known_stay_as_they_were() -> None:
    entities = Entities().seen(budgeted(SEARCH).members, NOON, NO_TRAIL)
    unknown = budgeted(known=False)
    assert not unknown.budgets_known
    now = entities.in_known_budgets(unknown.members)
    assert entities.seen(now, NOON + HOUR_MS, NO_TRAIL) == entities
    assert Entities().in_known_budgets(unknown.members) == list(unknown.members)


def teams_at_end_of(entities: Entities, end_ms: int, now: Sequence[PolicyMember]) -> dict[str, str]:
    return {
        one.client[0]: dict(one.member.labels)["team"] for one in entities.at_end_of(end_ms, now)
    }


def test_an_hour_has_the_labels_that_were_known_at_its_end() -> None:
    before, after = labelled(alice="shop", bob="ops"), labelled(alice="search", bob="ops")
    seen_ms = NOON + 3 * HOUR_MS + 3 * MINUTE
    entities = Entities().seen(before, NOON, NO_TRAIL).seen(after, seen_ms, NO_TRAIL)
    assert teams_at_end_of(entities, NOON - HOUR_MS, after) == {"alice": "shop", "bob": "ops"}
    assert teams_at_end_of(entities, NOON + 3 * HOUR_MS, after) == {"alice": "shop", "bob": "ops"}
    assert teams_at_end_of(entities, NOON + 4 * HOUR_MS, after) == {"alice": "search", "bob": "ops"}
    assert entities.seen(after, seen_ms + HOUR_MS, NO_TRAIL) == entities


def test_labels_are_kept_in_the_table() -> None:
    store = store_in(Bucket())
    entities = Entities().seen(labelled(alice="shop"), NOON, NO_TRAIL)
    write_entities(store, entities, Owner())
    assert read_entities(store) == entities
    assert decode(store.storage.read(PATH) or b"", where=PATH)["labels"].to_pylist() == [
        '{"team":"shop"}'
    ]


LOOKED = NOON + HOUR_MS
SEEN = NOON + 3 * HOUR_MS + 3 * MINUTE
CHANGED = NOON + 2 * HOUR_MS + 40 * MINUTE


def changes(looked_ms: int = LOOKED, **tiers: int) -> SpecChanges:
    return SpecChanges({f"ns/{tier}": at_ms for tier, at_ms in tiers.items()}, looked_ms)


def begins(entities: Entities) -> dict[tuple[str, str], int]:
    return {
        (one.client[0], one.tier.removeprefix("ns/")): one.from_ms for one in entities.memberships
    }


def test_a_member_that_moved_is_in_the_new_tier_from_the_change_of_its_spec_on() -> None:
    """Not from the run that saw it: the hour of the change has the new tier."""
    first = Entities().seen(FIRST, NOON + 3 * MINUTE, NO_TRAIL)
    found = first.seen(MOVED, SEEN, NO_TRAIL, changes(bulk=CHANGED, gold=CHANGED + MINUTE))
    assert begins(found)["alice", "bulk"] == CHANGED
    assert begins(found)["carol", "gold"] == CHANGED + MINUTE
    ended = {one.client[0]: one.to_ms for one in found.memberships if one.to_ms is not None}
    assert ended == {"alice": CHANGED}
    assert tiers_at_end_of(found, NOON + 2 * HOUR_MS, MOVED)["alice"] == "gold"
    assert tiers_at_end_of(found, NOON + 3 * HOUR_MS, MOVED)["alice"] == "bulk"


def test_who_left_all_tiers_left_with_the_change_of_its_tier() -> None:
    first = Entities().seen(FIRST, NOON + 3 * MINUTE, NO_TRAIL)
    found = first.seen(members(bob="bulk"), SEEN, NO_TRAIL, changes(gold=CHANGED))
    assert [one.to_ms for one in found.memberships] == [CHANGED, None]


def test_another_label_counts_from_the_change_of_its_tier_on() -> None:
    first = Entities().seen(labelled(alice="shop", bob="ops"), NOON, NO_TRAIL)
    after = labelled(alice="search", bob="ops")
    found = first.seen(after, SEEN, NO_TRAIL, changes(gold=CHANGED))
    assert teams_at_end_of(found, NOON + 2 * HOUR_MS, after)["alice"] == "shop"
    assert teams_at_end_of(found, NOON + 3 * HOUR_MS, after)["alice"] == "search"
    rows = [one for one in found.memberships if one.client[0] == "alice"]
    assert (rows[0].to_ms, rows[1].from_ms) == (CHANGED, CHANGED)


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(changes(), id="nobody kept it"),
        pytest.param(changes(bulk=LOOKED - MINUTE), id="before the last look: another reason"),
        pytest.param(changes(bulk=SEEN + MINUTE), id="a clock that is ahead"),
        pytest.param(changes(0, bulk=NOON + MINUTE), id="before what is written down"),
    ],
)
def test_a_time_that_cannot_be_that_of_the_change_gives_way_to_when_it_was_seen(
    known: SpecChanges,
) -> None:
    first = Entities().seen(FIRST, NOON + 3 * MINUTE, NO_TRAIL)
    found = first.seen(members(alice="bulk", bob="bulk"), SEEN, NO_TRAIL, known)
    assert begins(found)["alice", "bulk"] == SEEN


def test_the_first_run_has_its_members_for_all_time_before() -> None:
    found = Entities().seen(FIRST, SEEN, NO_TRAIL, changes(0, gold=CHANGED, bulk=NOON))
    assert set(begins(found).values()) == {SEEN}
    assert tiers_at_end_of(found, NOON, FIRST) == {"alice": "gold", "bob": "bulk"}


def test_the_trail_goes_before_the_change_of_a_spec() -> None:
    first = Entities().seen(FIRST, NOON + 3 * MINUTE, NO_TRAIL)
    found = first.seen(MOVED, NOON + 9 * HOUR_MS, TRAIL, changes(bulk=NOON + 4 * HOUR_MS))
    assert begins(found)["alice", "bulk"] == NOON + 80 * MINUTE


CLIENTS = ("alice", "bob", "carol")


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(CLIENTS), st.sampled_from(["gold", "bulk"])),
            st.integers(1, 5) | st.just(60),  # minutes until the next look
            st.dictionaries(st.sampled_from(["gold", "bulk"]), st.integers(-200, 10)),
            st.integers(-200, 10),  # when a run had looked, as far as that is known
        ),
        min_size=1,
        max_size=8,
    )
)
def test_whatever_times_are_given_a_client_is_in_one_tier_at_a_time_and_in_its_own_at_the_end(
    looks: list[tuple[dict[str, str], int, dict[str, int], int]],
) -> None:
    entities, at_ms = Entities(), NOON
    for tiers, minutes, changed, looked in looks:
        at_ms += minutes * MINUTE
        times = {tier: at_ms + minute * MINUTE for tier, minute in changed.items()}
        now = members(**tiers)
        entities = entities.seen(now, at_ms, NO_TRAIL, changes(at_ms + looked * MINUTE, **times))
        assert tiers_at_end_of(entities, at_ms + 1, now) == tiers or not entities.memberships
    for client in CLIENTS:
        own = [one for one in entities.memberships if one.client[0] == client]
        for earlier, later in pairwise(own):
            assert earlier.to_ms is not None
            assert earlier.from_ms <= earlier.to_ms <= later.from_ms
