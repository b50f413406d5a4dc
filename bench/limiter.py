"""The tiered limiter: what a request costs beside a peer and plain Python, what waiters cost while
none can be served, how late a waiter is woken, and a picture of the published waves.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from aiolimiter import AsyncLimiter

from bench.limiter_waves import PEAKS, RATE, Replay, replay
from bench.results import Figure, percentile
from tidegate.limiter import Bucket, Limiter
from tidegate.report import svg

_REQUESTS, _ROUNDS, _WAITERS, _TURNS = 500_000, 5, 100_000, 500
_PICTURE = Path("docs/limiter-waves.svg")


def limiter_figures() -> list[Figure]:
    """Processor time of one core; the best of the rounds, as for the peers. Draws the picture."""
    _draw(replay())
    alone_us = _refill_of_waiters_us(0)
    return [
        Figure("limiter: a request that passes at once", _ns(_uncontended), "ns", 500.0),
        Figure("limiter: a request that waits, in three tiers", _ns(_queued), "ns", 3333.0),
        Figure("plain Python: a lock, a clock and a subtraction", _ns(_floor), "ns", None),
        Figure("aiolimiter: a request that passes at once", _ns(_aiolimiter), "ns", None),
        Figure(
            f"limiter: a refill while {_WAITERS:,} wait and none can be served",
            _refill_of_waiters_us(_WAITERS),
            "us",
            None,
            f"{alone_us:.1f} us while nobody waits",
        ),
        Figure(
            "limiter: from a refill to the waiter that it serves, P99",
            1000 * percentile(_late_seconds(), 99),
            "ms",
            1.0,
        ),
    ]


def _ns(play: Callable[[], int]) -> float:
    """Nanoseconds of processor of a request."""

    def once() -> float:
        began = time.process_time_ns()
        requests = play()
        return (time.process_time_ns() - began) / requests

    return min(once() for _ in range(_ROUNDS))


def _uncontended() -> int:
    limiter = Limiter(1e15)
    take = limiter.try_acquire
    for _ in range(_REQUESTS):
        take(1000)
    limiter.close()
    return _REQUESTS


def _floor() -> int:
    clock, tokens, lock = time.monotonic, 1e15, Limiter(1e15)._lock

    def take(size_bytes: int) -> bool:
        nonlocal tokens
        with lock:
            if clock() < 0 or tokens < size_bytes:
                return False
            tokens -= size_bytes
        return True

    for _ in range(_REQUESTS):
        take(1000)
    return _REQUESTS


def _aiolimiter() -> int:
    async def play() -> None:
        limiter = AsyncLimiter(1e15, 1)
        for _ in range(_REQUESTS):
            await limiter.acquire(1000)

    asyncio.run(play())
    return _REQUESTS


def _queued() -> int:
    """Each refill serves what has waited since the one before."""
    bucket, now = Bucket(RATE), 0.0
    for number in range(_REQUESTS):
        bucket.put(1000, 1 + number % 3, now)
        if number % 1000 == 999:
            now += 0.01
            bucket.advance(now)
    return _REQUESTS


def _refill_of_waiters_us(waiters: int) -> float:
    """Microseconds of processor of a refill that tier 0 has used up already."""
    bucket = Bucket(RATE)
    bucket.put(int(RATE * 0.02), 0, 0.0)
    for number in range(waiters):
        bucket.put(int(RATE), 1 + number % 3, 0.0)
    began, refills = time.process_time(), 1000
    for turn in range(1, refills + 1):
        bucket.put(int(RATE * 0.01), 0, turn * 0.01)
        bucket.advance(turn * 0.01)
    return 1e6 * (time.process_time() - began) / refills


def _late_seconds() -> list[float]:
    """How long after the refill that serves it a waiter goes on."""
    refill_seconds, late, began = 0.01, list[float](), time.monotonic()

    def clock() -> float:
        return time.monotonic() - began

    with Limiter(RATE, refill_seconds=refill_seconds, clock=clock) as limiter:
        for _ in range(_TURNS):
            limiter.acquire(int(RATE * refill_seconds), tier=0)
            refills = clock() // refill_seconds + 1
            limiter.acquire(1, tier=1)
            late.append(clock() - refills * refill_seconds)
    return late


def _draw(seen: Replay) -> None:
    parts: list[svg.Markup] = []
    for tier, peak in enumerate(PEAKS):
        parts += [
            svg.bar(14 + 170 * tier, 42, 12, 12, class_=f"l{tier}"),
            svg.text(f"tier {tier}, peak {peak / 1e6:.0f} MB/s", 32 + 170 * tier, 52),
        ]
    for top, title, rows in ((90, "asked for", seen.offered), (280, "let by", seen.passed)):
        upward = svg.Scale(0, 250, top + 150, top)
        across = svg.Scale(0, seen.seconds, 44, svg.WIDTH - 20)
        seconds = range(0, seen.seconds + 1, 60)
        parts += [
            svg.text(f"{title}, MB/s", across.begin, top - 9, class_="faint"),
            svg.vertical_axis(
                upward, svg.labelled(range(0, 251, 50)), left=across.begin, right=across.end
            ),
            svg.horizontal_axis(
                across, svg.labelled(seconds, "{:.0f} s".format), top=top, bottom=top + 150
            ),
        ]
        base = [0.0] * seen.seconds
        for tier in range(3):
            above = [low + row[tier] / 1e6 for low, row in zip(base, rows, strict=False)]
            edges = (
                [(across.at(at), upward.at(rate)) for at, rate in enumerate(each)]
                for each in (above, base)
            )
            parts.append(svg.area(*edges, class_=f"l{tier}"))
            base = above
        limit = upward.at(RATE / 1e6)
        parts.append(svg.horizontal_line(limit, across.begin, across.end, class_="limit"))
    described = "Rates by tier, stacked, over seconds: what was asked for, and what was let by."
    _PICTURE.write_text(svg.svg_file("Three tiers at 100 MB/s", described, parts, height=460))
