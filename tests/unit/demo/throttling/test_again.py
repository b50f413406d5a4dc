"""An episode is played once more only when a bound was missed while the host took processors, and at most once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from demo.episode import Episode, left_out_words, played
from demo.report import throttling_html
from demo.words import MarkKind
from lab.load import ProcessorShare
from tests.goldens.golden import numbers

from .conftest import PlayedEpisode, PlayedThrottling

MISSES: dict[str, Any] = {"share": {"L0": 0.9}}


def of_host(episode: Episode, *, took_percent: float) -> Episode:
    return replace(episode, processor=ProcessorShare(60.0, took_percent))


@pytest.mark.parametrize(("spoilt", "took_percent"), [({}, 40.0), (MISSES, 12.0)])
def test_what_kept_its_bounds_or_had_the_machine_counts(spoilt: dict[str, Any], took_percent: float, played_episode: PlayedEpisode) -> None:
    only = of_host(played_episode(**spoilt), took_percent=took_percent)
    assert played(lambda _: only, mark=_never) == (only, None)


def test_the_second_playing_counts_whatever_it_shows(played_episode: PlayedEpisode, golden: Callable[[str], None]) -> None:
    marks: list[str] = []
    first, second = (of_host(played_episode(**MISSES), took_percent=taken) for taken in (21.0, 40.0))
    episodes = {"tidegate": first, "tidegate-again": second}
    counted = played(episodes.__getitem__, mark=lambda _at, _kind, text: marks.append(text))
    assert counted == (second, first)
    (said,) = marks
    assert left_out_words(first) in said
    assert numbers(said) >= {2, 21}
    golden(said)


def test_the_report_names_what_is_left_out(played_episode: PlayedEpisode, played_throttling: PlayedThrottling) -> None:
    throttling = played_throttling()
    left_out = of_host(played_episode(**MISSES), took_percent=21.0)
    words = left_out_words(left_out).replace("'", "&#39;")
    assert words not in throttling_html(throttling)
    assert words in throttling_html(replace(throttling, left_out=left_out))


def _never(_at: float, _kind: MarkKind, text: str) -> None:
    raise AssertionError(text)
