"""Who was a member of which tier when, from what runs saw and from the audit trail."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc
import pytest

from tests.unit.rollup.tables.bucket import Bucket, store_in
from tidegate.controller_logic.model import Entity, Level, Member, Policy, Tier
from tidegate.rollup.entities import (
    ENTITIES,
    PATH,
    Entities,
    client_of_entity,
    read_entities,
    write_entities,
)
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.tables.format import Owner, UsageDamaged, decode
from tidegate.rollup.terms.sources import PolicyMember, PolicyTerms, Trail, read_trail

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
