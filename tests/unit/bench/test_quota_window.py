"""The arithmetic on a run's rows: a sawtooth more or less at the edge changes no accuracy, a
silence counts from when it was felt.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from bench.quota_window import (
    CLIENTS,
    QUOTA_SHARE,
    Client,
    Kind,
    Phase,
    Second,
    egress_peak,
    figures,
    longest_silence_seconds,
    mute_seconds,
    peak,
    phases,
    read_rows,
    share_percent,
    silence_seconds,
    tables,
    window_picture,
    write_rows,
)
from tests.goldens.golden import numbers

MB = 1_000_000
CONSUMER = Client(Kind.CONSUMER, 5 * MB)


def rows(
    moved: Callable[[int], int], parts: Iterable[tuple[Phase, int]] = ((Phase.STEADY, 60),)
) -> list[Second]:
    """Every client moves `moved(second)` bytes; the NIC sends what it receives: that much."""
    every = [phase for phase, length in parts for _ in range(length)]
    return [
        Second(
            11,
            second,
            phase,
            {client.name: moved(second) for client in CLIENTS},
            moved(second),
            moved(second),
        )
        for second, phase in enumerate(every)
    ]


@pytest.mark.parametrize("begun", range(12))
def test_accuracy_does_not_depend_on_where_in_a_sawtooth_the_minute_begins(begun: int) -> None:
    sawteeth = rows(lambda second: 60 * MB if (second + begun) % 12 == 0 else 0)
    assert share_percent(sawteeth, CONSUMER) == pytest.approx(100, abs=0.01)


def test_the_nic_is_judged_by_its_highest_second() -> None:
    assert peak([1, 1, 4]) == 2
    assert egress_peak(rows(lambda second: 12 * MB if second % 12 == 0 else 0)) == pytest.approx(12)


def test_a_silence_counts_from_where_it_began_and_only_where_it_reaches_into_the_phase() -> None:
    silent = {0, 1, 2, 3, 8, 9, 10, 11}
    played = rows(
        lambda second: 0 if second in silent else MB, [(Phase.STEADY, 10), (Phase.HALF, 10)]
    )
    assert silence_seconds(played, CONSUMER, Phase.STEADY) == 4
    assert silence_seconds(played, CONSUMER, Phase.HALF) == 4
    assert silence_seconds(rows(lambda _: MB, [(Phase.HALF, 5)]), CONSUMER, Phase.HALF) == 0


def test_the_longest_silence_is_of_the_clients_that_were_asked_for() -> None:
    played = rows(lambda _: MB, [(Phase.HALF, 3)])
    played[1].moved[CONSUMER.name] = 0
    assert longest_silence_seconds(played, [Kind.CONSUMER], Phase.HALF) == 1
    assert longest_silence_seconds(played, [Kind.PRODUCER], Phase.HALF) == 0


@pytest.mark.parametrize("samples", [2, 3, 4, 5, 11])
def test_a_run_watches_for_longer_than_the_longest_mute(samples: int) -> None:
    lengths = dict(phases(samples))
    assert list(lengths) == list(Phase) == list(QUOTA_SHARE)
    assert lengths[Phase.STEADY] % (samples + 1) == 0
    for cut in (Phase.HALF, Phase.FIFTH):
        assert lengths[cut] > mute_seconds(samples, cut) + samples
    assert min(lengths[Phase.SETTLE], lengths[Phase.RETURN]) >= 2 * samples


def test_a_file_of_rows_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = rows(lambda second: second * MB, phases(2))
    write_rows(tmp_path / "new" / "rows.csv", written)
    assert read_rows(tmp_path / "new" / "rows.csv") == written


def test_a_run_is_shown_in_figures_tables_and_a_picture(golden: Callable[[str], None]) -> None:
    played = rows(lambda second: 60 * MB if second % 12 == 0 else 0, phases(11))
    accuracy, mutes = tables({11: played}).split("\n\n")
    assert numbers(accuracy) >= {5, 100, 12.0}
    assert numbers(mutes) >= {45, 11}
    least, silence = figures(played)
    assert (least.value, silence.value) == (pytest.approx(50, abs=0.1), 11)
    svg = window_picture({11: played})
    assert (svg.count("<svg"), svg.count("</svg>")) == (1, 1)
    golden(f"{accuracy}\n\n{mutes}")
