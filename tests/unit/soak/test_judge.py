"""The judge of a soak finds each breach of its rules, and nothing else."""

from collections.abc import Mapping

import pytest

from tests.soak.judge import FETCH, KNOWN_SECONDS, REPAIRED_WITHIN_SECONDS, Judge, Look
from tidegate_logic.model import QuotaKey

MB = 1_000_000
STRANGER = {"mallory": {FETCH: "4000000"}}
PROMISED = 6 * MB


@pytest.fixture
def judge() -> Judge:
    made = Judge(frozenset({"alice"}), 2, STRANGER, 100.0 * MB, 12.0, 10.0)
    made.declared(0.0, {"alice": PROMISED, "frank": PROMISED})
    return made


def look(
    at: float, *, alice: int = 12, frank: int = 12, sent: float = 8, fullest: float = 60
) -> Look:
    quotas: Mapping[str, Mapping[QuotaKey, str]] = {
        **STRANGER,
        "alice": {FETCH: str(alice * MB)},
        "frank": {FETCH: str(frank * MB)},
    }
    return Look(at, quotas, dict.fromkeys(("alice", "frank"), sent * MB), fullest * MB)


def test_a_throttle_in_safe_steps_is_no_breach(judge: Judge) -> None:
    for at, frank in ((1, 12), (2, 4), (14, 4), (15, 2), (40, 12)):
        judge.see(look(float(at), frank=frank, sent=min(8, frank)))
    assert judge.violations == []


def test_a_step_that_may_mute_for_too_long_is_one(judge: Judge) -> None:
    judge.see(look(1.0))
    judge.see(look(2.0, frank=3))
    (found,) = judge.violations
    assert "frank consumer_byte_rate 12000000 -> 3000000 may mute for 19.3 s" in found


def test_what_a_clients_window_no_longer_holds_does_not_mute(judge: Judge) -> None:
    judge.see(look(1.0))
    for at in range(2, 40):
        judge.see(look(float(at), sent=1))
    judge.see(look(40.0, frank=2, sent=1))
    assert judge.violations == []


def test_l0_below_the_lowest_promise_of_late_is_one_for_whoever_lowered_it(judge: Judge) -> None:
    judge.see(look(1.0, alice=10))
    assert len(judge.violations) == 1
    judge.see(look(2.0, alice=10))
    assert len(judge.violations) == 1, "it is said once"


def test_l0_may_have_what_it_was_promised_until_lately(judge: Judge) -> None:
    judge.declared(10.0, {"alice": 8 * MB, "frank": PROMISED})
    judge.see(look(10.0 + KNOWN_SECONDS - 1))
    assert judge.violations == []
    judge.see(look(10.0 + KNOWN_SECONDS + 1))
    assert "below 16000000" in judge.violations[0]


def test_another_writers_value_is_the_operators_only_when_it_stays(judge: Judge) -> None:
    judge.see(look(1.0))
    judge.disturbed(2.0, "alice")
    judge.see(look(3.0, alice=1))
    assert judge.violations == []
    judge.see(look(3.0 + REPAIRED_WITHIN_SECONDS, alice=1))
    assert len(judge.violations) == 1


def test_a_quota_that_no_tier_names_stays(judge: Judge) -> None:
    seen = look(1.0)
    judge.see(Look(1.0, {**seen.quotas, "mallory": {}}, seen.sent, seen.fullest))
    assert "mallory" in judge.violations[0]


@pytest.mark.parametrize(("steady_seconds", "breaches"), [(80.0, 0), (100.0, 1)])
def test_a_raise_over_the_limit_is_one_where_the_load_has_been_the_same(
    judge: Judge, steady_seconds: float, breaches: int
) -> None:
    judge.see(look(steady_seconds - 1, frank=4, fullest=99))
    judge.see(look(steady_seconds, frank=12, fullest=101))
    assert len(judge.violations) == breaches


def test_after_a_gap_steps_are_not_judged_as_one(judge: Judge) -> None:
    judge.see(look(1.0))
    judge.see(look(20.0, frank=2))
    assert judge.violations == []
