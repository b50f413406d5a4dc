"""Which topics of a DelayQueue are created, corrected, drained and deleted."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_logic.queues.levels import (
    RETENTION_MS,
    TIMESTAMP_TYPE,
    FoundTopic,
    Level,
    LevelDecision,
    Quiet,
    WantedLevels,
    decide_levels,
    first_claim,
)

WANTED = WantedLevels({5: 2, 600: 1}, grace_seconds=86_400)
FIVE, FIVE_2, TEN_MINUTES = Level(5, 0), Level(5, 1), Level(600, 0)
GONE = Level(60, 0)


def own(level: Level = FIVE, **changes: object) -> FoundTopic:
    """A topic as the queue makes it, with nothing in it."""
    made = FoundTopic(
        settings=WANTED.settings(level), begin=0, end=0, position_known=True, late_seconds=0.0
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def decided(
    found: Mapping[Level, FoundTopic] | None,
    wanted: WantedLevels = WANTED,
    quiet: Mapping[Level, Quiet] | None = None,
    now_seconds: float = 1000.0,
) -> LevelDecision:
    return decide_levels(wanted, found, quiet or {}, now_seconds=now_seconds, quiet_seconds=60.0)


def all_own() -> dict[Level, FoundTopic]:
    return {level: own(level) for level in (FIVE, FIVE_2, TEN_MINUTES)}


def test_missing_topics_are_created_and_nothing_else_is_done() -> None:
    assert decided({FIVE: own()}) == LevelDecision(create=(FIVE_2, TEN_MINUTES))


def test_what_is_as_wanted_stays() -> None:
    assert decided(all_own()) == LevelDecision()


def test_topics_that_could_not_be_listed_change_nothing() -> None:
    quiet = {GONE: Quiet(3, 10.0)}
    assert decided(None, quiet=quiet) == LevelDecision(quiet=quiet)
    assert not decided(None, replace(WANTED, deleting=True)).is_done


def test_a_topic_that_is_not_wanted_is_drained_and_deleted_when_it_was_quiet_for_a_while() -> None:
    full = all_own() | {GONE: own(GONE, end=7, position=3)}
    drained = all_own() | {GONE: own(GONE, end=7, position=7)}
    first = decided(full)
    assert (first.draining, first.delete, first.quiet) == ((GONE,), (), {})
    second = decided(drained, quiet=first.quiet, now_seconds=1000.0)
    assert (second.draining, second.delete) == ((GONE,), ())
    third = decided(drained, quiet=second.quiet, now_seconds=1059.0)
    assert (third.draining, third.delete) == ((GONE,), ())
    assert decided(drained, quiet=third.quiet, now_seconds=1060.0).delete == (GONE,)


def test_a_record_that_came_meanwhile_starts_the_wait_again() -> None:
    quiet = {GONE: Quiet(7, 0.0)}
    written = all_own() | {GONE: own(GONE, end=8, position=8)}
    decision = decided(written, quiet=quiet)
    assert decision.delete == ()
    assert decision.quiet == {GONE: Quiet(8, 1000.0)}


@pytest.mark.parametrize(
    "topic",
    [
        own(GONE, end=7, position=3),
        own(GONE, end=7),
        own(GONE, end=None),
        own(GONE, begin=None),
        own(GONE, position_known=False),
        own(GONE, end=7, position=8),
        own(GONE, partitions=2),
    ],
    ids=["waits", "never forwarded", "no end", "no begin", "unread", "beyond its end", "two"],
)
def test_a_topic_in_which_something_may_wait_is_never_deleted(topic: FoundTopic) -> None:
    quiet = {GONE: Quiet(7, 0.0)}
    assert decided(all_own() | {GONE: topic}, quiet=quiet).delete == ()


def test_fewer_topics_of_a_delay_drain_the_last_ones() -> None:
    wanted = replace(WANTED, delays={5: 1, 600: 1})
    assert decided(all_own(), wanted).draining == (FIVE_2,)


# --- whose a topic is -----------------------------------------------------------------------------

FOREIGN = FoundTopic(settings={}, begin=0, end=7, position_known=True)


def test_a_topic_of_somebody_else_is_taken_and_left_alone() -> None:
    decision = decided(all_own() | {FIVE: FOREIGN})
    assert list(decision.taken) == [FIVE]
    assert TIMESTAMP_TYPE in decision.taken[FIVE]
    assert (decision.create, decision.corrections, decision.delete) == ((), {}, ())


def test_an_empty_topic_is_adopted_and_gets_the_settings() -> None:
    decision = decided(all_own() | {FIVE: replace(FOREIGN, begin=7)})
    assert decision.taken == {}
    assert decision.corrections == {FIVE: WANTED.settings(FIVE)}


def test_a_topic_of_several_partitions_is_never_adopted() -> None:
    decision = decided(all_own() | {FIVE: own(partitions=3)})
    assert list(decision.taken) == [FIVE]
    assert "3 partitions" in decision.taken[FIVE]


def test_a_topic_that_is_not_wanted_and_not_ours_is_not_touched_even_if_empty() -> None:
    for topic in (FOREIGN, replace(FOREIGN, begin=7)):
        decision = decided(all_own() | {GONE: topic}, quiet={GONE: Quiet(7, 0.0)})
        assert decision == LevelDecision()


def test_settings_that_somebody_changed_on_a_forwarded_topic_are_corrected() -> None:
    changed = own(position=0, settings={**WANTED.settings(FIVE), TIMESTAMP_TYPE: "CreateTime"})
    assert decided(all_own() | {FIVE: changed}).corrections == {
        FIVE: {TIMESTAMP_TYPE: "LogAppendTime"}
    }


@pytest.mark.parametrize(
    "topic", [own(settings=None), replace(FOREIGN, position_known=False)], ids=["settings", "notes"]
)
def test_a_topic_of_which_something_is_unknown_stays_as_it_is(topic: FoundTopic) -> None:
    decision = decided(all_own() | {FIVE: topic})
    assert decision == LevelDecision(unknown=(FIVE,))


# --- retention ------------------------------------------------------------------------------------


def test_a_longer_retention_is_set_at_once() -> None:
    decision = decided(all_own(), replace(WANTED, grace_seconds=90_000))
    assert decision.corrections[FIVE] == {RETENTION_MS: "90005000"}


@pytest.mark.parametrize(
    ("topic", "is_set"),
    [
        (own(end=7, position=7), True),
        (own(end=7, position=3, late_seconds=0.0), True),
        (own(end=7, position=3, late_seconds=3500.0), True),
        (own(end=7, position=3, late_seconds=3600.0), False),
        (own(end=7, position=3, late_seconds=None), False),
        (own(end=None, position=3), False),
    ],
)
def test_a_shorter_retention_waits_until_it_deletes_nothing_that_waits(
    topic: FoundTopic, is_set: bool
) -> None:
    decision = decided(all_own() | {FIVE: topic}, replace(WANTED, grace_seconds=3600))
    assert (FIVE in decision.corrections) == is_set


# --- deletion -------------------------------------------------------------------------------------


def test_a_queue_that_is_drained_ends_when_its_last_topic_is_gone() -> None:
    wanted = replace(WANTED, deleting=True)
    waits = {FIVE: own(end=7, position=3), FIVE_2: own(FIVE_2, end=2, position=2)}
    first = decided(waits, wanted)
    assert (first.create, first.draining, first.is_done) == ((), (FIVE, FIVE_2), False)
    second = decided(waits, wanted, first.quiet, now_seconds=1060.0)
    assert (second.delete, second.is_done) == ((FIVE_2,), False)
    assert decided({}, wanted).is_done


def test_a_drain_waits_for_what_is_unknown_but_not_for_topics_of_somebody_else() -> None:
    wanted = replace(WANTED, deleting=True)
    assert not decided({FIVE: own(settings=None)}, wanted).is_done
    assert decided({FIVE: FOREIGN}, wanted) == LevelDecision(is_done=True)


def test_a_queue_that_is_kept_ends_at_once_and_touches_nothing() -> None:
    wanted = replace(WANTED, deleting=True, keeps_topics=True)
    assert decided({FIVE: own(end=7), GONE: own(GONE)}, wanted) == LevelDecision(is_done=True)


def test_the_first_claim_of_a_prefix_wins() -> None:
    assert first_claim({"younger": 4, "older": 2}) == "older"
    assert first_claim({}) is None


def test_what_is_waiting_and_what_is_lost() -> None:
    assert own(end=9).waiting == 9
    assert own(begin=4, end=9, position=6).waiting == 3
    lost = own(begin=4, end=9, position=1)
    assert (lost.waiting, lost.lost) == (5, 3)
    never_read = own(begin=4, end=9)
    assert (never_read.waiting, never_read.lost) == (5, 4)
    assert own(begin=4, end=9, position_known=False).lost == 0


# --- properties -----------------------------------------------------------------------------------

LEVELS = st.builds(Level, st.sampled_from([5, 60, 600]), st.integers(0, 2))
OFFSETS = st.one_of(st.none(), st.integers(0, 5))
MARKED = st.sampled_from([None, {}, WANTED.settings(FIVE), WANTED.settings(TEN_MINUTES)])
TOPICS = st.builds(
    FoundTopic,
    partitions=st.integers(1, 2),
    settings=MARKED,
    begin=OFFSETS,
    end=OFFSETS,
    position=OFFSETS,
    position_known=st.booleans(),
    late_seconds=st.one_of(st.none(), st.floats(0, 200_000)),
)
WANTEDS = st.builds(
    WantedLevels,
    delays=st.dictionaries(st.sampled_from([5, 60, 600]), st.integers(1, 3)),
    grace_seconds=st.sampled_from([60, 3600, 86_400]),
    deleting=st.booleans(),
    keeps_topics=st.booleans(),
)
QUIETS = st.dictionaries(LEVELS, st.builds(Quiet, st.integers(0, 5), st.floats(0, 1000)))


@given(wanted=WANTEDS, found=st.dictionaries(LEVELS, TOPICS), quiet=QUIETS)
def test_nothing_that_may_wait_is_ever_deleted_or_cut_off(
    wanted: WantedLevels, found: dict[Level, FoundTopic], quiet: dict[Level, Quiet]
) -> None:
    decision = decided(found, wanted, quiet)
    for level in decision.delete:
        assert found[level].waiting == 0
        assert quiet[level].end == found[level].end
        assert not wanted.has(level)
    for level, settings in decision.corrections.items():
        topic = found[level]
        before, after = (topic.settings or {}).get(RETENTION_MS), settings.get(RETENTION_MS)
        if before is None or after is None or int(after) >= int(before) or topic.waiting == 0:
            continue
        assert topic.waiting is not None
        assert topic.late_seconds is not None
        assert (level.seconds + topic.late_seconds) * 1000 < int(after)


@given(wanted=WANTEDS, found=st.dictionaries(LEVELS, TOPICS), quiet=QUIETS)
def test_every_topic_gets_one_fate_and_only_a_known_one_changes(
    wanted: WantedLevels, found: dict[Level, FoundTopic], quiet: dict[Level, Quiet]
) -> None:
    decision = decided(found, wanted, quiet)
    fates = [decision.create, decision.draining, decision.delete, tuple(decision.taken)]
    levels = [level for fate in (*fates, decision.unknown) for level in fate]
    assert len(levels) == len(set(levels))
    assert not set(decision.create) & found.keys()
    touched = {*decision.corrections, *decision.delete}
    assert not touched & {*decision.taken, *decision.unknown}
    assert all(found[level].partitions == 1 for level in touched)


@given(
    before=st.dictionaries(st.sampled_from([5, 60, 600]), st.integers(1, 3)),
    after=st.dictionaries(st.sampled_from([5, 60, 600]), st.integers(1, 3)),
    records=st.dictionaries(LEVELS, st.integers(1, 5)),
    deleting=st.booleans(),
)
def test_a_queue_that_changes_gets_its_topics_in_the_end_and_forwards_every_record(
    before: dict[int, int], after: dict[int, int], records: dict[Level, int], deleting: bool
) -> None:
    first = WantedLevels(before, 86_400)
    topics = {level: own(settings=first.settings(level)) for level in decided({}, first).create}
    written = {level: count for level, count in records.items() if level in topics}
    for level, count in written.items():
        topics[level] = replace(topics[level], end=count)
    wanted = WantedLevels(after, 3600, deleting=deleting)
    quiet: dict[Level, Quiet] = {}
    forwarded, now_seconds = 0, 0.0
    for _ in range(20):
        decision = decided(topics, wanted, quiet, now_seconds)
        quiet, now_seconds = dict(decision.quiet), now_seconds + 30.0
        for level in decision.create:
            topics[level] = own(settings=wanted.settings(level))
        for level, settings in decision.corrections.items():
            topics[level] = replace(
                topics[level], settings={**(topics[level].settings or {}), **settings}
            )
        for level in decision.delete:
            del topics[level]
        for level, topic in topics.items():  # one record of each a look
            position = topic.position or 0
            if position < (topic.end or 0):
                topics[level] = replace(topic, position=position + 1)
                forwarded += 1
    assert forwarded == sum(written.values())
    expected = {} if deleting else {Level(s, n) for s, count in after.items() for n in range(count)}
    assert set(topics) == set(expected)
    assert all(topic.settings == wanted.settings(level) for level, topic in topics.items())
    assert decided(topics, wanted, quiet, now_seconds).is_done == deleting
