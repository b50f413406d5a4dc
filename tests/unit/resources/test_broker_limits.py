"""A broker's limits are those of its override, each by itself, and else those of all brokers."""

import pytest

from tidegate.resources.policy import BrokerLimits, NicLimits

LIMITS = BrokerLimits.model_validate_json(
    """{
    "egress": {"limit": "2k", "capacity": "9k"},
    "overrides": [
        {"ids": [7, 8], "egress": {"limit": "3k"}},
        {"ids": [9], "egress": {"capacity": "5k"}, "ingress": {"limit": "4k", "capacity": "6k"}}
    ]}"""
)
Rates = tuple[int | None, int | None]


@pytest.mark.parametrize(
    ("broker", "egress", "ingress"),
    [
        pytest.param(1, (2000, 9000), (None, None), id="a broker without override"),
        pytest.param(8, (3000, 9000), (None, None), id="an override of one limit leaves the others"),
        pytest.param(9, (2000, 5000), (4000, 6000), id="an override of the others leaves the first"),
    ],
)
def test_an_override_replaces_only_what_it_names(broker: int, egress: Rates, ingress: Rates) -> None:
    assert (rates(LIMITS.egress_of(broker)), rates(LIMITS.ingress_of(broker))) == (egress, ingress)


def rates(limits: NicLimits | None) -> Rates:
    return (None, None) if limits is None else (limits.limit, limits.capacity)
