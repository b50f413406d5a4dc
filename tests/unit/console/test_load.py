"""What pages and `tidegate top` make of the readings beside the status."""

from dataclasses import replace

from tests.unit.controller_logic.test_broker_watch import seen
from tidegate.view.load import Load
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    ClientRate,
    Direction,
    Entity,
    Level,
    Member,
    NicSpan,
    Readings,
    Tier,
)
from tidegate_logic.throttle.nic_status import Pressure

MB = 1_000_000


def test_a_jump_that_the_operator_has_as_over_is_over_before_the_mean_shows_it() -> None:
    status = {
        "levels": [{"level": "L3", "state": "Throttled"}],
        "brokers": [{"id": 1, "pressure": "Over"}],
    }
    looked_at_before = {1: Pressure.WITHIN, 2: Pressure.WITHIN}

    def shown(status: dict[str, object], *egress: float) -> Pressure:
        watched = Load(seen(*egress), status, looked_at_before).watched
        assert watched is not None
        return watched[0].pressure

    assert shown(status, 0.2, 0.2, 1.4) is Pressure.OVER
    assert shown(status, 0.2, 0.2, 0.4) is Pressure.WITHIN
    # by the mean alone, until the operator has said it
    assert shown({**status, "brokers": []}, 0.2, 0.2, 1.4) is Pressure.WITHIN


def test_a_broker_that_the_operator_reads_directly_is_so_in_every_row() -> None:
    observed = seen(0.2)
    tiers = observed.tiers or ()
    status = {"brokers": [{"id": 1, "directSince": "2026-01-01T00:00:00Z"}, {"id": 2}]}
    assert {nic.broker for nic in Load(observed, status).nics(tiers) if nic.is_direct} == {1}
    assert not any(nic.is_direct for nic in Load(observed, {}).nics(tiers))


def test_a_combined_nic_is_one_row_with_what_levels_send_both_ways() -> None:
    entity, span = Entity("etl"), NicSpan(1000.0, 15.0, 40.0 * MB)
    tier = Tier("streaming/batch", Level.L3, (Member("etl", entity),))
    ways = (Direction.EGRESS, Direction.INGRESS)
    readings = Readings(
        1000.0,
        15.0,
        {(1, way): (replace(span, at_seconds=985.0), span) for way in ways},
        {(entity, 1, way): ClientRate(1000.0, 10.0 * MB) for way in ways},
    )
    observed = seen()
    limits = BrokerLimits(BrokerLimit(combined=70 * MB))
    load = Load(
        replace(
            observed,
            now_seconds=1000.0,
            policy=replace(observed.policy, limits=limits),
            readings=readings,
        ),
        {},
    )
    (nic,) = [one for one in load.nics([tier]) if one.broker == 1]
    assert (nic.direction, nic.pressure, nic.limit) == (Direction.COMBINED, Pressure.OVER, 70 * MB)
    assert (nic.bytes_per_second, nic.rest) == (80 * MB, 60 * MB)
    assert nic.by_level == {Level.L3: 20 * MB}
