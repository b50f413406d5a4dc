"""The rates of members on each broker, by their contracts and by the status of their tier."""

from __future__ import annotations

import pytest

from tests.unit.rollup.terms.operator_metrics import ETL, policy, tier
from tidegate.rollup.terms.sources import contract_rates
from tidegate_logic.model import Contract, Default, Entity, Member, RateForm


def member(form: RateForm, *topics: str) -> Member:
    return Member("one", Entity("one"), topics, Contract(form, fetch_bytes_per_second=9_001))


@pytest.mark.parametrize(
    ("one", "rates"),
    [
        (member(RateForm.PER_BROKER), {"fetch": 9_001.0}),
        (member(RateForm.PER_BROKER, "orders"), {"fetch": 9_001.0}),
        (member(RateForm.TOTAL), {"fetch": 4_501.0}),
        (member(RateForm.TOTAL, "orders"), {}),
        (member(RateForm.PER_PARTITION, "orders"), {}),
        (Member("one", Entity("one")), {}),
    ],
)
def test_a_contract_is_a_rate_on_each_broker_where_leaders_do_not_matter(
    one: Member, rates: dict[str, float]
) -> None:
    assert contract_rates(one, brokers=2) == rates


@pytest.mark.parametrize(
    ("status", "rates"),
    [
        (
            {"state": "Contract", "quota": {"fetch": 700, "produce": 70}},
            {"fetch": 700.0, "produce": 70.0},
        ),
        (
            {"state": "Stepping", "quota": {"fetch": 900}, "target": {"fetch": 700}},
            {"fetch": 700.0},
        ),
        ({"state": "Throttled", "quota": {"fetch": 300}}, {"fetch": 2000.0}),
    ],
)
def test_a_status_counts_more_than_the_contract_unless_the_member_is_throttled(
    status: dict[str, object], rates: dict[str, float]
) -> None:
    terms = policy(tier(ETL), statuses={"ns/bulk": {"members": [{"name": "etl", **status}]}})
    assert terms.promised(terms.members[0], brokers=2) == rates


def test_of_members_that_overlap_the_first_counts_and_defaults_are_left_out() -> None:
    again, anybody = Member("again", Entity("etl")), Member("anybody", Entity(Default.DEFAULT))
    pair = Member("pair", Entity("etl", "app"))
    terms = policy(tier(ETL, anybody), tier(again, pair, key="ns/other"))
    assert [(one.client, one.member.name) for one in terms.members] == [
        (("etl", ""), "etl"),
        (("etl", "app"), "pair"),
    ]
