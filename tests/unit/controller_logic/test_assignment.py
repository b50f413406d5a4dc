"""Who forwards which level topic: everything once, balanced, and with the fewest moves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_logic.queues.assignment import Assignment, assign

NAMES = st.sets(st.text("abcdef", min_size=1, max_size=3), max_size=8)
TOPICS = st.sets(st.integers(0, 60).map("shop.5.{}".format), max_size=40)
ANYTHING = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.lists(st.integers(0, 70).map("shop.5.{}".format), max_size=30).map(tuple),
    max_size=8,
)
"""Also what no assignment is: topics of two members, topics and members that are gone."""


def _owners(assignment: Assignment) -> dict[str, str]:
    return {topic: member for member, topics in assignment.items() for topic in topics}


def _moves(before: Assignment, after: Assignment) -> set[str]:
    """The topics that had an owner, and have another one."""
    owners = _owners(before)
    return {
        topic for topic, member in _owners(after).items() if owners.get(topic, member) != member
    }


@given(TOPICS, NAMES.filter(bool), ANYTHING)
def test_every_topic_has_one_member_and_counts_differ_by_one_at_most(
    topics: set[str], members: set[str], before: Assignment
) -> None:
    result = assign(topics, members, before)
    assert result.keys() == members
    assert sorted(topic for has in result.values() for topic in has) == sorted(topics)
    counts = [len(has) for has in result.values()]
    assert max(counts) - min(counts) <= 1


@given(TOPICS, NAMES, ANYTHING)
def test_assigning_again_changes_nothing(
    topics: set[str], members: set[str], before: Assignment
) -> None:
    result = assign(topics, members, before)
    assert assign(topics, members, result) == result
    backwards = sorted(topics, reverse=True), sorted(members, reverse=True)
    assert assign(*backwards, before) == result


@given(TOPICS, NAMES.filter(bool), ANYTHING)
def test_a_join_moves_only_the_newcomers_share(
    topics: set[str], members: set[str], earlier: Assignment
) -> None:
    before = assign(topics, members, earlier)
    after = assign(topics, members | {"new"}, before)
    moved = _moves(before, after)
    assert moved == set(after["new"])
    assert len(moved) <= math.ceil(len(topics) / (len(members) + 1))


@given(TOPICS, NAMES.filter(lambda names: len(names) > 1), ANYTHING, st.data())
def test_a_leave_moves_only_the_leavers_topics(
    topics: set[str], members: set[str], earlier: Assignment, data: st.DataObject
) -> None:
    before = assign(topics, members, earlier)
    leaver = data.draw(st.sampled_from(sorted(members)))
    after = assign(topics, members - {leaver}, before)
    assert _moves(before, after) == set(before[leaver])


@given(TOPICS, TOPICS, NAMES.filter(bool), ANYTHING)
def test_no_other_balanced_assignment_keeps_more(
    topics: set[str], others: set[str], members: set[str], earlier: Assignment
) -> None:
    """Topics come and go: what stays is what the shares allow, richest members first."""
    before = assign(others, members, earlier)
    after = assign(topics, members, before)
    least, left_over = divmod(len(topics), len(members))
    had = sorted((len(topics.intersection(before[member])) for member in members), reverse=True)
    best = sum(min(count, least + (place < left_over)) for place, count in enumerate(had))
    stayed = topics & _owners(before).keys() - _moves(before, after)
    assert len(stayed) == best


@pytest.mark.parametrize(
    "before", [{}, {"a": ("shop.5.0", "shop.5.1", "shop.600.0", "shop.600.1")}]
)
def test_topics_of_one_delay_get_different_members(before: Assignment) -> None:
    topics = [f"shop.{seconds}.{number}" for seconds in (5, 600) for number in (0, 1)]
    assert assign(topics, ["a", "b"], before) == {
        "a": ("shop.5.0", "shop.600.0"),
        "b": ("shop.5.1", "shop.600.1"),
    }


@pytest.mark.parametrize("topics", [(), ("shop.5.0",)])
def test_without_members_nobody_has_anything(topics: tuple[str, ...]) -> None:
    assert assign(topics, (), {"gone": topics}) == {}
