"""Usage at the end of the demo: the commands and when they run, and the bounds that their tables
are held against.
"""

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console

from demo import usage_outcome, usage_run
from demo.usage_outcome import (
    Done,
    Reading,
    UsageCommands,
    UsageOutcome,
    carry_out,
    counted_by_brokers,
    grown_until,
    held_back_by_quotas,
    words_of,
)
from lab.prometheus import PrometheusLab
from tests.goldens.golden import numbers
from tests.unit.demo.conftest import (
    ENDED,
    FIRST_WRITE,
    LADDER,
    RAISED,
    PlayedEpisode,
    PlayedThrottling,
    RolledUp,
)
from tidegate.cli import app

# --- the run --------------------------------------------------------------------------------------
# The end of the demo waits for the last window, runs the commands in turn, and gives up the rest
# where one fails.


OVER = 300 * (int(ENDED) // 300 + 1)


class Clock:
    def __init__(self) -> None:
        self.now = ENDED + 3.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    strftime = staticmethod(usage_run.time.strftime)
    localtime = staticmethod(usage_run.time.localtime)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(usage_run, "time", clock)
    return clock


def ended(
    monkeypatch: pytest.MonkeyPatch,
    played_throttling: PlayedThrottling,
    tmp_path: Path,
    *,
    codes: Sequence[int],
) -> tuple[UsageOutcome, list[str], str]:
    run: list[str] = []

    def carry_out(arguments: list[str], _: Path) -> Done:
        run.append(" ".join(arguments[:2]))
        return Done(" ".join(arguments), codes[len(run) - 1], 1.0, ("[bold]said[/bold]",))

    stored = SimpleNamespace(end_ms=OVER * 1000)
    monkeypatch.setattr(usage_run, "carry_out", carry_out)
    monkeypatch.setattr("demo.usage_run.stored_usage", lambda folder: stored)
    monkeypatch.setattr(
        usage_run, "witnesses", lambda *_, until_ms, longest_seconds: (until_ms, longest_seconds)
    )
    parts: Any = SimpleNamespace(
        prometheus=SimpleNamespace(ready=lambda: SimpleNamespace(url="http://127.0.0.1:9090")),
        kafka=SimpleNamespace(network=None, run=SimpleNamespace(path=tmp_path)),
    )
    interruption: Any = SimpleNamespace(reported=lambda: Console().status(""))
    out = io.StringIO()
    usage = usage_run.run_usage(
        Console(file=out, width=200),
        parts,
        played_throttling(),
        began_seconds=ENDED - 500,
        output=tmp_path,
        interruption=interruption,
    )
    return usage, run, out.getvalue()


def test_all_three_run_after_the_last_window_is_over(
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    played_throttling: PlayedThrottling,
    tmp_path: Path,
) -> None:
    usage, run, said = ended(monkeypatch, played_throttling, tmp_path, codes=[0, 0, 0])
    assert run == ["rollup run", "rollup verify", "report --store"]
    assert OVER < clock.now < OVER + 10
    assert usage.failed is None
    assert usage.witnesses == (OVER * 1000, int(clock.now - ENDED + 500) + 60)
    assert "$ tidegate rollup run --prometheus http://127.0.0.1:9090 --preset JmxExporter" in said
    assert "[bold]said[/bold]" in said


def test_what_comes_after_a_command_that_failed_is_not_run(
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    played_throttling: PlayedThrottling,
    tmp_path: Path,
) -> None:
    usage, run, said = ended(monkeypatch, played_throttling, tmp_path, codes=[0, 1])
    assert run == ["rollup run", "rollup verify"]
    assert usage.failed == usage.commands[1]
    assert (usage.stored, usage.witnesses) == (None, None)
    assert 1 in numbers(said)


@pytest.mark.parametrize(("later", "waited"), [(400.0, 0.0), (301.0, 3.0)])
def test_a_window_that_is_over_already_is_waited_for_only_until_its_end_was_scraped(
    later: float,
    waited: float,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    played_throttling: PlayedThrottling,
    tmp_path: Path,
) -> None:
    clock.now = OVER + later
    ended(monkeypatch, played_throttling, tmp_path, codes=[0, 0, 0])
    assert clock.now == OVER + later + waited


# --- the commands ---------------------------------------------------------------------------------
# The commands are those of the product, with files that exist, for a time that holds the whole run.


START, END = 1_795_356_000 + 50, 1_795_356_600.0  # 14:00:50Z, 14:10


def commands(*, has_nics: bool = True, end: float = END) -> UsageCommands:
    return UsageCommands("http://127.0.0.1:9090", Path("out/demo"), START, end, has_nics=has_nics)


@pytest.mark.parametrize("has_nics", [True, False])
def test_each_is_a_command_that_there_is(has_nics: bool) -> None:
    asked = commands(has_nics=has_nics)
    for arguments in (asked.roll_up, asked.verify, asked.report):
        context = typer.main.get_command(app).make_context("tidegate", list(arguments))
        while hasattr(context.command, "resolve_command"):
            _, command, rest = context.command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            assert command is not None
            context = command.make_context(command.name, rest, parent=context)
        assert context.params


def test_files_that_are_named_are_there() -> None:
    arguments = commands().roll_up
    files = [Path(value) for option, value in pairwise(arguments) if option == "-f"]
    assert len(files) == 2
    assert all(file.is_file() for file in files)


@pytest.mark.parametrize(
    ("end", "until"), [(END, "2026-11-22T15:00:00Z"), (1_795_359_600.0, "2026-11-22T15:00:00Z")]
)
def test_the_report_is_until_the_end_of_the_hour_in_which_the_tables_end(
    end: float, until: str
) -> None:
    words = words_of(commands(end=end).report)
    assert f"--from 2026-11-22T14:00:50Z --to {until}" in words
    assert words.startswith("tidegate report --store out/demo/usage-tables ")


def test_what_a_command_says_is_kept_with_its_exit_code(tmp_path: Path) -> None:
    done = carry_out(["rollup", "verify", "--store", "ftp://nowhere"], tmp_path)
    assert (done.words, done.exit_code) == ("tidegate rollup verify --store ftp://nowhere", 1)
    assert done.said[0].startswith("error: ftp://nowhere is not a storage address")


def test_one_that_does_not_end_is_ended_and_has_no_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        usage_outcome, "_LONGEST_SECONDS", 0.0
    )  # Python itself takes longer to start
    assert carry_out(["rollup", "verify", "--store", str(tmp_path)], tmp_path).exit_code is None


# --- the brokers' counters ------------------------------------------------------------------------
# The brokers' counters, added up sample by sample.


READINGS: list[Reading] = [(1000, 100), (2000, 130), (3000, 170), (4000, 171)]


@pytest.mark.parametrize(
    ("until_ms", "grown"),
    [(900, 0), (1000, 0), (2000, 30), (2400, 30 + 16), (2999, 30 + 39), (3000, 70), (9000, 71)],
)
def test_a_byte_between_two_samples_is_shared_out_by_time_in_whole_bytes(
    until_ms: int, grown: int
) -> None:
    assert grown_until(READINGS, until_ms) == grown


def test_a_counter_that_fell_began_anew() -> None:
    assert (
        grown_until([(1000, 500), (2000, 600), (9000, 40), (10_000, 50)], 20_000) == 100 + 40 + 10
    )


@pytest.mark.parametrize("readings", [[], [(1000, 7)]])
def test_one_reading_shows_nothing(readings: list[Reading]) -> None:
    assert grown_until(readings, 5000) == 0


def test_each_broker_and_direction_is_counted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def query(_: object, expression: str) -> list[dict[str, object]]:
        if expression.startswith("process_start_time_seconds{"):
            return []
        grown = 10 if expression.startswith("kafka_broker_bytesin_total[") else 1
        return [
            {"metric": {"broker": broker}, "values": [[1.0, "5"], [2.004, str(5 + grown * number)]]}
            for number, broker in enumerate(("1", "2"), start=1)
        ]

    monkeypatch.setattr(PrometheusLab, "query", query)
    counted = counted_by_brokers(PrometheusLab(), until_ms=2004, longest_seconds=60)
    assert counted == {(1, "produce"): 10, (2, "produce"): 20, (1, "fetch"): 1, (2, "fetch"): 2}


def test_what_a_broker_moved_before_its_first_scrape_counts_where_its_start_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def query(_: object, expression: str) -> list[dict[str, object]]:
        if expression.startswith("process_start_time_seconds{"):
            return [{"metric": {"broker": "1"}, "values": [[1.0, "0.5"]]}]
        return [
            {"metric": {"broker": broker}, "values": [[1.0, "700"], [2.0, "750"]]}
            for broker in ("1", "2")
        ]

    monkeypatch.setattr(PrometheusLab, "query", query)
    counted = counted_by_brokers(PrometheusLab(), until_ms=2000, longest_seconds=60)
    assert (counted[1, "fetch"], counted[2, "fetch"]) == (750, 50)


# --- what quotas held back ------------------------------------------------------------------------
# What quotas held back from a business: the area between its rate before the first cut and the
# quotas that stood until the contract.


@pytest.mark.parametrize(("level", "back_after"), [("L3", 5), ("L2", 5), ("L1", 20)])
def test_it_is_what_the_quotas_were_below_the_rate_before_them(
    level: str, back_after: int, played_episode: PlayedEpisode
) -> None:
    rungs = LADDER[level]
    ends = [*(after for after, _ in rungs[1:]), RAISED + back_after - FIRST_WRITE]
    episode = played_episode(back_after_seconds=back_after)
    wanted = episode.business_of(level).demand
    expected = sum(
        (wanted - quota) * (end - begin) for (begin, quota), end in zip(rungs, ends, strict=True)
    )
    assert held_back_by_quotas(episode, level) == pytest.approx(expected)


def test_from_who_was_never_cut_nothing_is_held_back(played_episode: PlayedEpisode) -> None:
    assert held_back_by_quotas(played_episode(), "L0") == 0.0


def test_a_quota_above_the_rate_before_it_holds_nothing_back(played_episode: PlayedEpisode) -> None:
    assert held_back_by_quotas(played_episode(ladder={"L3": ((0, 26_000_000),)}), "L3") == 0.0


def test_what_a_client_did_not_want_is_not_held_back(played_episode: PlayedEpisode) -> None:
    """It wants half: a quota of 12 MB/s takes half a megabyte a second from it."""
    episode = played_episode(ladder={"L3": ((0, 12_000_000),)}, share={"L3": 0.5})
    assert held_back_by_quotas(episode, "L3") == pytest.approx(500_000 * (RAISED + 5 - FIRST_WRITE))


# --- bounds ---------------------------------------------------------------------------------------
# The bounds of usage: tables that say what witnesses saw keep all of them, each way of failing
# misses its own.


EXIT_CODE = "rollup run, verify and report: exit code"
DIFFER = "bytes in which tables and brokers' counters differ"


def missed(rolled_up: RolledUp, **spoilt: Any) -> list[str]:
    return [check.name for check in rolled_up(**spoilt).checks() if not check.kept]


def test_tables_that_say_what_was_seen_keep_every_bound(rolled_up: RolledUp) -> None:
    assert missed(rolled_up) == []


@pytest.mark.parametrize(
    ("spoilt", "names"),
    [
        ({"miscounted": 1}, [DIFFER]),
        ({"moved": {"reports": 1.08}}, ["reports (L3), its share of all reads"]),
        ({"moved": {"search": 0.92}}, ["search (L2), its share of all reads"]),
        ({"held": {"reports": 1.11}}, ["held back from L3 in experiment 2"]),
        ({"held": {"orders": 0.0}}, ["held back from L1 in experiment 2"]),
        ({"held": {"checkout": 1.0}}, ["held back from L0 in experiment 2"]),
    ],
)
def test_what_is_wrong_misses_its_bound_and_no_other(
    spoilt: dict[str, Any], names: list[str], rolled_up: RolledUp
) -> None:
    assert missed(rolled_up, **spoilt) == names


@pytest.mark.parametrize("code", [1, None])
def test_a_command_that_failed_or_never_ended_misses_everything(
    code: int | None, rolled_up: RolledUp
) -> None:
    checks = rolled_up(code=code).checks()
    assert [check.kept for check in checks] == [False] * len(rolled_up().checks())
    assert {check.measured for check in checks} <= {None, 1}


def test_the_more_that_brokers_send_to_all_alike_is_no_error_of_shares(rolled_up: RolledUp) -> None:
    users = ("checkout", "orders", "search", "reports")
    assert missed(rolled_up, moved=dict.fromkeys(users, 1.2)) == []
