"""A rate reads the same in every place that shows one: a quota of 40 kB/s is `40 kB/s` and never
`0.0 MB/s`, and what is missing is no zero.
"""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tidegate
import tidegate_logic
from tidegate.commands import audit, rollup_page, simulate, top
from tidegate.console import markup
from tidegate.control.report.events import over_words
from tidegate.control.report.replication import begin_words, stall_words
from tidegate_logic.model import Direction, QuotaKey
from tidegate_logic.quota_values import quota_words, short_words
from tidegate_logic.replication.moves import MoveKind, Side
from tidegate_logic.replication.rates import Stall
from tidegate_logic.reports import _of_limit
from tidegate_logic.throttle.nic_status import NicStatus, Pressure, WatchedBroker
from tidegate_logic.words import rate_words

FETCH = QuotaKey.CONSUMER_BYTE_RATE
WORDS = {0: "0 B/s", 999: "999 B/s", 40_000: "40 kB/s", 1_500_000_000: "1.5 GB/s"}


def _nic(rate: int) -> NicStatus:
    limit = 50_000_000
    return NicStatus(1, Pressure.OVER, limit, bytes_per_second=rate, hot_samples=1, samples=1)


PLACES: dict[str, Callable[[int], str]] = {
    "a cell of plan, explain and restore": lambda rate: short_words(FETCH, rate),
    "a sentence of explain, status and notes": lambda rate: quota_words(FETCH, str(rate)),
    "a NIC in a status": lambda rate: _of_limit(_nic(rate)),
    "an Event of a broker": lambda rate: over_words(
        WatchedBroker(1, Pressure.OVER, {Direction.EGRESS: _nic(rate)})
    ),
    "a condition of replication": lambda rate: stall_words(
        Stall(Side(1, Direction.EGRESS), rate, 0.0)
    ),
    "top": top._rate,
    "audit": audit._rate,
    "simulate": simulate._rate,
    "rollup top": lambda rate: rollup_page._cell("fetch_rate", rate),
    "the console": lambda rate: str(markup.rate(rate)),
}


@pytest.mark.parametrize(
    ("place", "rate"),
    # a quota of zero limits nothing, and is called unlimited
    [
        (place, rate)
        for place in PLACES
        for rate in WORDS
        if rate or not place.startswith(("a cell", "a sentence"))
    ],
)
def test_a_rate_reads_the_same_in_every_place(place: str, rate: int) -> None:
    assert WORDS[rate] in PLACES[place](rate)


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (lambda: top._rate(None), "-"),
        (lambda: audit._rate(None), "unknown"),
        (lambda: simulate._rate(None), "unlimited"),
        (lambda: markup.rate(None), '<span class="unknown">unknown</span>'),
        (lambda: rollup_page._cell("fetch_rate", None), ""),
        (lambda: short_words(FETCH, None), "unlimited"),
    ],
)
def test_what_is_missing_is_never_zero(shown: Callable[[], Any], words: str) -> None:
    assert str(shown()) == words


@pytest.mark.parametrize(("left", "words"), [(40_000, "40 kB left"), (1_500_000_000, "1.5 GB")])
def test_sizes_have_the_units_of_rates(left: int, words: str) -> None:
    figures: Any = SimpleNamespace(partitions=1, bytes_left=left, seconds=None)
    assert words in begin_words(MoveKind.REASSIGNMENT, figures)
    assert words.removesuffix(" left") == rate_words(left).removesuffix("/s")


def test_no_other_module_spells_a_rate_a_size_or_a_time() -> None:
    """Anything formatted straight before a unit is a second spelling, which is how 40 kB/s came to
    be 0.0 MB/s; so is a second writer of RFC 3339.
    """
    second = re.compile(r"\} ?[kMGT]B\b|%H:%M:%SZ|isoformat\(timespec=|\"\+00:00\", \"Z\"")
    roots = [Path(str(package.__file__)).parent for package in (tidegate, tidegate_logic)]
    found = [
        f"{path.name}: {line.strip()}"
        for root in roots
        for path in sorted(root.rglob("*.py"))
        if path.name != "words.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if second.search(line)
    ]
    # the limit of a request's body, in units of 1024, and a cell of a CSV, which is data
    assert found == [
        'gate.py: refusal = 413, f"at most {_LONGEST_BODY_BYTES // 1024} kB"',
        'focus.py: return f"{value:%Y-%m-%dT%H:%M:%SZ}"',
    ]
