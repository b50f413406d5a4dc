"""What pages and `tidegate top` make of the readings beside the status."""

from tests.unit.controller_logic.test_broker_watch import seen
from tidegate.view.load import Load
from tidegate_logic.throttle.nic_status import Pressure


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
