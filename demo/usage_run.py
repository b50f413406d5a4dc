"""The end of the demo: its own traffic is rolled up and reported by the commands of a user.

The figures come from its own Prometheus.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from demo.episode import ThrottlingOutcome
from demo.parts import Parts
from demo.usage_outcome import (
    TABLES,
    Done,
    StoredUsage,
    UsageCommands,
    UsageOutcome,
    UserUsage,
    carry_out,
    witnesses,
    words_of,
)
from demo.words import Interruption

if TYPE_CHECKING:
    import pyarrow as pa

_CLIENT = ["tier", "user", "direction"]
_USED = ["bytes", "deferred_bytes"]
_BROKER = ["broker", "direction"]


def stored_usage(folder: Path) -> StoredUsage:
    """What is published there, which has to be something. Raises tidegate.errors.

    It uses the product's own reader: only files that manifests name count.
    """
    # Here and not above: without the packages of rollups `tidegate rollup run` has failed, and the
    # experiments are reported all the same.
    import pyarrow as pa

    from tidegate.rollup.schemas import FIVE_MINUTES_MS
    from tidegate.rollup.tables.store import UsageStore

    store = UsageStore.at(str(folder))
    brokers = store.rows("broker_5m")
    clients = store.rows("usage_1h", columns=[*_CLIENT, *_USED])
    return StoredUsage(
        end_ms=max(brokers["window_start"].cast(pa.int64()).to_pylist()) + FIVE_MINUTES_MS,
        by_broker={
            (broker, direction): moved
            for broker, direction, moved in _sums(brokers, _BROKER, ["client_bytes"])
        },
        users=tuple(UserUsage(*row) for row in _sums(clients, _CLIENT, _USED)),
    )


def _sums(rows: "pa.Table", keys: list[str], summed: list[str]) -> list[tuple[Any, ...]]:
    found = rows.group_by(keys).aggregate([(name, "sum") for name in summed])
    ordered = found.select([*keys, *(f"{name}_sum" for name in summed)]).sort_by(
        [(key, "ascending") for key in keys]
    )
    return [tuple(row.values()) for row in ordered.to_pylist()]


_WINDOW_SECONDS = 300
# The window's end lies between two scrapes, and the later one has to be there.
_SCRAPES_LATER_SECONDS = 4


def run_usage(
    console: Console,
    parts: Parts,
    throttling: ThrottlingOutcome,
    *,
    began_seconds: float,
    output: Path,
    interruption: Interruption,
) -> UsageOutcome:
    """Wait until the window in which experiment 3 ended is over, then roll up, verify, report.

    Nothing of it is tried twice.
    """
    with interruption.reported():
        console.print("\nThe demo's own usage, rolled up from its Prometheus:", highlight=False)
        _wait_for_window(console, throttling.tidegate.ended_seconds)
        over_seconds = time.time() // _WINDOW_SECONDS * _WINDOW_SECONDS
        prometheus = parts.prometheus.ready()
        commands = UsageCommands(
            prometheus.url,
            output,
            began_seconds,
            over_seconds,
            has_nics=parts.kafka.network is not None,
        )
        done: list[Done] = []
        for arguments in (commands.roll_up, commands.verify, commands.report):
            done.append(_shown(console, parts, arguments))
            if done[-1].exit_code != 0:
                return UsageOutcome(tuple(done))
        stored, longest = stored_usage(output / TABLES), int(time.time() - began_seconds) + 60
        return UsageOutcome(
            tuple(done),
            stored,
            witnesses(prometheus, throttling, until_ms=stored.end_ms, longest_seconds=longest),
        )


def _wait_for_window(console: Console, ended_seconds: float) -> None:
    """Also for the scrape after a window that has just ended, since that is the last one then."""
    newest = time.time() // _WINDOW_SECONDS * _WINDOW_SECONDS
    over = max(ended_seconds + -ended_seconds % _WINDOW_SECONDS, newest) + _SCRAPES_LATER_SECONDS
    left = over - time.time()
    if left > 0:
        until = time.strftime("%H:%M:%S", time.localtime(over))
        words = (
            f"tables hold whole windows of five minutes; waiting until {until} for the last "
            f"one, {left:.0f} s"
        )
        console.print(f"  {words}", highlight=False)
        with console.status(words):
            time.sleep(left)


def _shown(console: Console, parts: Parts, arguments: list[str]) -> Done:
    console.print(
        f"  $ {words_of(arguments)}",
        style="bold cyan",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    with console.status("running"):
        done = carry_out(arguments, parts.kafka.run.path / "usage")
    for line in done.said:
        console.print(f"    {line}", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"    {'still running' if done.exit_code is None else f'exit code {done.exit_code}'} "
        f"after {done.seconds:.0f} s"
    )
    return done
