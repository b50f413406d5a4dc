"""The bad-input table against a real API server: every row is refused with a message that names the field and the rule."""

import pytest

from tests.integration.resources.conftest import Answer
from tests.unit.resources.bad_input import BAD_INPUT, BadInput
from tests.unit.resources.documents import ABSENT, member, override, policy, tier

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("row", BAD_INPUT, ids=lambda row: row.name)
def test_bad_input_is_refused_and_the_message_names_the_field_and_what_must_hold(row: BadInput, answer: Answer) -> None:
    refusal = answer(row.document)
    assert refusal is not None, "accepted"
    assert row.field in refusal
    assert row.server_words in refusal


SOUND = {
    "a policy that uses every field": policy(),
    "a policy of only what has no default": {
        **policy(),
        "spec": {
            "mode": "Observe",
            "kafka": {"bootstrapServers": "[::1]:9092", "quotaStore": "ZooKeeper", "zookeeper": {"connect": "[::1]:2181"}},
        },
    },
    "a tier that uses every field": tier(),
    "an exempt member": tier({"level": "L0", "throttledRates": ABSENT, "members": [member("free")]}),
    "500 members": tier({"members": [member(f"m{i}", topics=["a"], contract={"perPartition": {"fetch": "2Mi"}}) for i in range(500)]}),
    "a rate at the ceiling": tier({"members.0.contract.perPartition.fetch": "9007199254740991"}),
    "rates with fractions": tier({"throttledRates.perPartition.fetch": "1.5Ki", "members.0.contract.perPartition.fetch": "2.0625Gi"}),
    "a throttled rate equal to the contract": tier({"throttledRates.perPartition.fetch": "10Mi"}),
    "a user with a TLS name": tier({"members.0.user": "CN=kafka,OU=x,O=y"}),
    "the user of everybody without login": tier({"members.0.user": "ANONYMOUS"}),
    "an override that uses every field": override(),
    "an override of a level": override({"target": {"level": "L2"}, "action": "Exempt", "rates": ABSENT}),
    "more for level L0": override({"target": {"level": "L0"}, "rates": {"total": {"produce": "4096"}}}),
    "an end with a fraction and an offset": override({"expiresAt": "2028-02-29T23:59:59.123456789+02:00"}),
    "an end that is over": override({"expiresAt": "2001-01-01T00:00:00Z"}),
    "every topic": tier({"members.0.topics": ["*"]}),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_input_is_accepted(name: str, answer: Answer) -> None:
    assert answer(SOUND[name]) is None


def test_a_rate_that_breaks_its_own_rule_draws_no_complaint_about_the_contract(answer: Answer) -> None:
    refusal = answer(tier({"members.0.contract.perPartition.fetch": "0"}))
    assert refusal is not None
    assert "spec.throttled" not in refusal
