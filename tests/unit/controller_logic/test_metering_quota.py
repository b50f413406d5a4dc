"""Metering in whole passes: written like every default, restored when it is not wanted any more,
and without effect on others.
"""

from dataclasses import dataclass, replace

from tests.unit.controller_logic.worlds import (
    ALICE,
    FETCH,
    MB,
    PRODUCE,
    World,
    member,
    per_broker,
    policy,
    stored,
    tier,
)
from tidegate_logic.contracts.desired import DEFAULT_USER, NEVER_BINDS
from tidegate_logic.model import Entity, Observation, WriteKind
from tidegate_logic.quota_values import quota_words
from tidegate_logic.reasons import Reason

CEILING = str(NEVER_BINDS)


@dataclass
class Metered(World):
    """A world where somebody looks whether client ids alone have quotas."""

    client_quotas: bool | None = False

    def observation(self) -> Observation:
        return replace(super().observation(), client_quotas_exist=self.client_quotas)


def metered(**changes: object) -> Metered:
    """Two members with contracts, on a policy that asks for metering."""
    promised = tier(member(ALICE, per_broker(MB)), member(Entity("bob"), per_broker(MB)))
    return Metered(
        (promised,),
        policy=policy(metering_enabled=True, **changes),
        quotas={DEFAULT_USER: stored(DEFAULT_USER)},
    )


def limits(world: World) -> dict[str, str | None]:
    return {"fetch": world.text(DEFAULT_USER, FETCH), "produce": world.text(DEFAULT_USER, PRODUCE)}


def test_the_default_user_gets_a_quota_that_never_binds_with_a_record_of_it() -> None:
    world = metered()
    decision = world.run()
    assert limits(world) == {"fetch": CEILING, "produce": CEILING}
    assert decision.managed == 3
    assert world.quotas is not None
    assert world.quotas[DEFAULT_USER].ledger is not None
    assert world.run().writes == ()


def test_people_read_which_number_it_is() -> None:
    (write,) = [write for write in metered().run().writes if write.entity == DEFAULT_USER]
    assert dict(write.values) == {FETCH: CEILING, PRODUCE: CEILING}
    assert quota_words(FETCH, CEILING) in write.message


def test_when_it_is_no_longer_asked_for_it_is_given_back_at_once_and_without_a_confirmation() -> (
    None
):
    """It limits no client, so removing it frees none: it is not counted among the removals that a
    person confirms.
    """
    world = metered()
    world.tiers = ()
    world.run()
    world.policy = replace(world.policy, metering_enabled=False)
    (write,) = world.after(15).writes
    assert (write.entity, write.kind) == (DEFAULT_USER, WriteKind.GIVE_BACK)
    assert limits(world) == {"fetch": None, "produce": None}


def test_a_client_id_quota_that_comes_later_takes_it_away_and_people_are_reported() -> None:
    world = metered()
    world.run()
    world.client_quotas = True
    decision = world.after(15)
    assert limits(world) == {"fetch": None, "produce": None}
    assert [note.reason for note in decision.notes] == [Reason.METERING_WITHHELD]


def test_a_limit_that_somebody_sets_for_the_default_user_is_left_to_them() -> None:
    world = metered()
    world.run()
    world.someone_sets(DEFAULT_USER, "50000000", FETCH)
    world.after(15)
    assert limits(world) == {"fetch": "50000000", "produce": None}
    assert world.after(15).writes == ()


def test_while_no_one_knows_of_client_ids_it_stays_as_it_is() -> None:
    world = metered()
    world.client_quotas = None
    world.run()
    assert limits(world) == {"fetch": None, "produce": None}
    world.client_quotas = False
    world.after(15)
    world.client_quotas = None
    assert world.after(15).writes == ()
    assert limits(world) == {"fetch": CEILING, "produce": CEILING}


def test_a_first_quota_of_a_metered_user_is_no_lowering_from_nine_petabytes() -> None:
    world = metered()
    world.run()
    carol = Entity("carol")
    world.tiers = (
        *(world.tiers or ()),
        tier(member(carol, per_broker(5 * MB)), key="streaming/late"),
    )
    world.after(15)
    assert world.text(carol) == str(5 * MB)


def test_a_default_that_the_policy_declares_later_replaces_it_at_once() -> None:
    world = metered()
    world.run()
    world.policy = replace(world.policy, defaults={DEFAULT_USER: {FETCH: 50 * MB}})
    world.after(15)
    assert limits(world) == {"fetch": str(50 * MB), "produce": None}


def test_a_paused_policy_leaves_it_alone() -> None:
    world = metered(paused_by=("spec.suspend",))
    assert world.run().writes == ()
