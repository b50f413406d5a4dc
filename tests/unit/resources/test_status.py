"""A status can always be written: what the arithmetic yields fits the schema, and what is unset is left out."""

from tidegate.resources.rates import CEILING_BYTES_PER_SECOND
from tidegate.resources.status import MemberStatus, QuotaInForce, TierStatus, TotalRates


def test_a_total_beyond_what_json_can_say_exactly_is_shown_as_the_ceiling() -> None:
    assert TotalRates(fetch=3 * CEILING_BYTES_PER_SECOND).fetch == CEILING_BYTES_PER_SECOND


def test_a_status_is_written_in_camel_case_without_what_is_unset() -> None:
    member = MemberStatus(name="nightly", state="Contract", leader_skew="1.33", quota=QuotaInForce(fetch=20_971_520))
    assert TierStatus(observed_generation=3, members=(member,)).as_document() == {
        "observedGeneration": 3,
        "members": [{"name": "nightly", "state": "Contract", "leaderSkew": "1.33", "quota": {"fetch": 20_971_520}}],
    }
