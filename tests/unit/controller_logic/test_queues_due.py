from hypothesis import given
from hypothesis import strategies as st

from tidegate_logic.queues.due import ClockOffset, DueHeap, count_due, due_times, next_look_ms

times = st.integers(0, 10**13)
delays = st.integers(1, 10**9)


@given(st.lists(times), delays, times)
def test_no_record_is_due_early_or_before_its_predecessor(
    appended: list[int], delay_ms: int, after_ms: int
) -> None:
    due = due_times(appended, delay_ms, after_ms=after_ms)
    assert len(due) == len(appended)
    assert due == sorted(due)
    assert all(d >= a + delay_ms and d >= after_ms for d, a in zip(due, appended, strict=True))


@given(st.lists(times).map(sorted), delays)
def test_in_log_order_a_record_is_due_at_append_plus_delay(
    appended: list[int], delay_ms: int
) -> None:
    assert due_times(appended, delay_ms) == [a + delay_ms for a in appended]


@given(st.lists(times), delays, st.integers(0, 10**13), st.data())
def test_due_times_do_not_depend_on_how_records_are_read(
    appended: list[int], delay_ms: int, after_ms: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(appended)))
    first = due_times(appended[:cut], delay_ms, after_ms=after_ms)
    rest = due_times(appended[cut:], delay_ms, after_ms=first[-1] if first else after_ms)
    assert first + rest == due_times(appended, delay_ms, after_ms=after_ms)


@given(st.lists(times).map(sorted), times, st.data())
def test_due_is_what_has_passed(due: list[int], now_ms: int, data: st.DataObject) -> None:
    count = count_due(due, now_ms)
    assert all(d <= now_ms for d in due[:count])
    assert all(d > now_ms for d in due[count:])
    start = data.draw(st.integers(0, len(due)))
    assert count_due(due, now_ms, start=start) == max(count, start)


@given(st.integers(1, 10**9))
def test_an_empty_level_is_looked_at_after_a_quarter_of_its_delay(delay_ms: int) -> None:
    assert next_look_ms(1000, delay_ms) == 1000 + min(delay_ms / 4, 100)


acts = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.sampled_from("abcd"), st.integers(0, 50)),
        st.tuples(st.just("drop"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.integers(0, 50)),
    )
)


@given(acts)
def test_the_heap_has_each_topic_at_its_last_time(acts: list[tuple[str, str, int]]) -> None:
    heap, model = DueHeap(), dict[str, int]()
    for act, topic, when in acts:
        if act == "schedule":
            heap.schedule(topic, when)
            model[topic] = when
        elif act == "drop":
            heap.drop(topic)
            model.pop(topic, None)
        else:
            due = heap.pop_due(when)
            assert due == sorted(
                (t for t, at in model.items() if at <= when), key=lambda t: (model[t], t)
            )
            for popped in due:
                del model[popped]
        assert heap.next_ms() == min(model.values(), default=float("inf"))


milliseconds = st.floats(0, 50, allow_nan=False)
probes = st.lists(st.tuples(milliseconds, milliseconds, st.floats(1, 20_000)), min_size=1)


@given(probes, st.floats(-600_000, 600_000), st.floats(0, 60_000), st.floats(-90e-6, 90e-6))
def test_the_brokers_time_is_never_taken_for_later_than_it_is(
    probes: list[tuple[float, float, float]], ahead_ms: float, later_ms: float, drift: float
) -> None:
    """Whatever the latency of probes, and however far the clocks are apart."""
    offset = ClockOffset()
    own = 10_000_000.0

    def broker(own_ms: float) -> float:
        return own_ms - ahead_ms - (own_ms - 10_000_000) * drift

    for there, back, pause in probes:
        appended = int(broker(own + there))
        offset.add(own, own + there + back, appended)
        own += there + back + pause
    own += later_ms
    most = offset.most_ms(own)
    assert most is not None
    assert own - most <= broker(own) + 1e-6


def test_the_best_probe_counts() -> None:
    offset = ClockOffset()
    offset.add(1000, 1030, 500)
    offset.add(1040, 1041, 540)
    offset.add(1050, 1090, 560)
    most = offset.most_ms(1090)
    assert most is not None
    assert 501 <= most < 501.1


def test_after_a_jump_of_the_brokers_clock_old_probes_count_no_more() -> None:
    offset = ClockOffset()
    offset.add(1000, 1002, 1000)
    offset.add(2000, 2002, 1400)  # the brokers went back by 600 ms
    most = offset.most_ms(2002)
    assert most is not None
    assert most >= 600


def test_nothing_is_known_before_the_first_probe() -> None:
    assert ClockOffset().most_ms(0) is None
