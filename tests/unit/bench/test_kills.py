"""A seed names its blows: who reproduces a failure gets the same ones."""

from collections import Counter

from bench.rollup.kills import Kind, plan


def test_the_same_seed_plans_the_same_and_another_one_something_else() -> None:
    assert plan(7, 50) == plan(7, 50)
    assert plan(7, 50) != plan(8, 50)


def test_everybody_is_struck_as_often() -> None:
    assert set(Counter(blow.kind for blow in plan(1, 100)).values()) == {100 // len(Kind)}


def test_a_kind_that_this_machine_cannot_strike_is_left_out() -> None:
    assert {blow.kind for blow in plan(1, 20, (Kind.DRIVER, Kind.WORKER))} == {Kind.DRIVER, Kind.WORKER}


def test_a_longer_plan_begins_as_the_shorter_one_does() -> None:
    assert plan(3, 40)[:10] == plan(3, 10)
