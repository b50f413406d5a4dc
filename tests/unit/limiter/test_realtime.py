"""The limiter with threads, by a clock that the test turns."""

import threading
from collections.abc import Iterator

import pytest

from tidegate.limiter import Limiter, Ticket

RATE = 100_000  # 1000 bytes in a refill


@pytest.fixture
def limiter() -> Iterator[Limiter]:
    with Limiter(RATE) as made:
        yield made


def test_what_finds_tokens_does_not_wait(limiter: Limiter) -> None:
    assert limiter.try_acquire(1000)
    assert not limiter.try_acquire(100_000_000)
    assert limiter.acquire(10_000_000, tier=0)


def test_a_thread_waits_for_its_turn(limiter: Limiter) -> None:
    assert limiter.acquire(3000, timeout_seconds=60)


def test_whoever_gives_up_leaves_nothing_behind(limiter: Limiter) -> None:
    assert not limiter.acquire(10**12, timeout_seconds=0.001)
    assert limiter.oldest_age_seconds() == {}
    assert limiter.acquire(3000, timeout_seconds=60)


def test_a_callback_may_ask_for_more(limiter: Limiter) -> None:
    ended = threading.Event()

    def again(_: Ticket) -> None:
        limiter.submit(2000, 1, lambda _: ended.set())

    limiter.submit(2000, 1, again)
    assert ended.wait(60)


def test_a_higher_rate_ends_the_wait_of_those_who_wait(limiter: Limiter) -> None:
    ended = threading.Event()
    limiter.submit(10**9, 2, lambda _: ended.set())
    assert set(limiter.oldest_age_seconds()) == {2}
    limiter.set_rate(10**12)
    assert ended.wait(60)


def test_spread_is_the_rate_at_which_the_bytes_take_that_long(limiter: Limiter) -> None:
    with pytest.raises(ValueError, match="no time"):
        limiter.spread(1, 0)
    limiter.spread(10**12, 0.5)
    assert limiter.acquire(10**9, timeout_seconds=60)


def test_closing_calls_back_without_the_bytes() -> None:
    limiter = Limiter(RATE)
    told: list[float | None] = []
    limiter.submit(10**12, 1, lambda ticket: told.append(ticket.done_seconds))
    limiter.close()
    assert told == [None]
    with pytest.raises(RuntimeError, match="closed"):
        limiter.submit(10**12, 1, print)


def test_many_threads_share_one_rate() -> None:
    now = 0.0
    with Limiter(RATE, clock=lambda: now) as limiter:
        taken = [0] * 4

        def take(index: int) -> None:
            taken[index] = sum(limiter.try_acquire(1) for _ in range(1000))

        threads = [threading.Thread(target=take, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(taken) == 1000
