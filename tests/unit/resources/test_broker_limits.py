"""A broker's limits are those of its override, each by itself, and else those of all brokers."""

import pytest

from tidegate.resources.policy import BrokerLimitOverride, BrokerLimits

LIMITS = BrokerLimits(
    egress_limit=2000,
    egress_capacity=9000,
    overrides=(BrokerLimitOverride(ids=(7, 8), egress_limit=3000), BrokerLimitOverride(ids=(9,), ingress_limit=4000, egress_capacity=5000)),
)


@pytest.mark.parametrize(
    ("broker", "egress_limit", "ingress_limit", "egress_capacity"),
    [
        pytest.param(1, 2000, None, 9000, id="a broker without override"),
        pytest.param(8, 3000, None, 9000, id="an override of one limit leaves the others"),
        pytest.param(9, 2000, 4000, 5000, id="an override of the others leaves the first"),
    ],
)
def test_an_override_replaces_only_what_it_names(
    broker: int, egress_limit: int | None, ingress_limit: int | None, egress_capacity: int | None
) -> None:
    found = (LIMITS.egress_limit_of(broker), LIMITS.ingress_limit_of(broker), LIMITS.egress_capacity_of(broker))
    assert found == (egress_limit, ingress_limit, egress_capacity)
