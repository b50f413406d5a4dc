"""The whole pass on small worlds: what ends up in the store."""

from tests.unit.controller_logic.worlds import ALICE, MB, World, member, per_broker, per_partition, tier, topology


def test_a_contract_follows_the_leaders_when_a_broker_dies() -> None:
    orders = {1: 1, 2: 1, 3: 1}
    world = World((tier(member(ALICE, per_partition(10 * MB), "orders")),), topology=topology({"orders": orders}))
    world.run()
    assert world.text(ALICE) == "10000000"
    world.topology = topology({"orders": {1: 2, 2: 1}}, brokers=(1, 2))
    world.after(15)
    assert world.text(ALICE) == "20000000"


def test_an_edited_contract_goes_down_in_safe_steps() -> None:
    world = World((tier(member(ALICE, per_broker(50 * MB))),))
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(1 * MB))),)
    seen = [world.text(ALICE)]
    world.now_seconds += 60
    while True:
        decision = world.run()
        seen.append(world.text(ALICE))
        if decision.next_pass_in_seconds is None:
            break
        world.now_seconds += decision.next_pass_in_seconds
    assert [int(text or 0) for text in seen] == [50 * MB, 25 * MB, 12500000, 6250000, 3125000, 1562500, MB]
    assert not world.after(100).writes
