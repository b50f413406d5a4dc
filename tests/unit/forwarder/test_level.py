"""When a level topic is looked at again: what is due in it never waits for the next look."""

from __future__ import annotations

from tests.unit.forwarder.kafka_twin import ConsumerTwin, Message, level
from tidegate.forwarder.level import Level

DUE = 1000.0  # of what was appended at 0, with the delay of a second


def sent(one: Level, now_ms: float) -> int:
    """Send what is due; how many records that were."""
    count = one.count_due(now_ms) - one.sent
    one.note_sent(count, now_ms)
    return count


def test_records_behind_those_that_were_read_are_due_just_as_soon() -> None:
    one = level(records=3)
    consumer = one.consumer
    assert isinstance(consumer, ConsumerTwin)
    assert sent(one, DUE) == 3
    consumer.waiting = [Message(at) for at in (3, 4)]  # appended while the first three waited
    assert one.next_ms(DUE) == DUE, "there may be more, so it is looked at immediately"
    assert sent(one, DUE) == 2


def test_a_topic_that_is_sent_as_fast_as_it_is_read_is_looked_at_every_few_milliseconds() -> None:
    one = level(records=3)
    sent(one, DUE)
    assert sent(one, DUE) == 0
    assert one.next_ms(DUE) == DUE + 5
    assert one.next_ms(DUE + 499) == DUE + 504
    assert one.next_ms(DUE + 500) == DUE + 600, "nothing has come for a while"


def test_an_empty_topic_is_looked_at_after_a_quarter_of_its_delay_or_a_tenth_of_a_second() -> None:
    one = level()
    assert sent(one, DUE) == 0
    assert one.next_ms(DUE) == DUE + 100
