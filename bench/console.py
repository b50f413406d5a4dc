"""The console with 50 brokers and 1000 members, looked at in Debian's Chromium: how soon a page is
there and follows a pass, what the process costs with one viewer, and what a what-if takes.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import psutil
from playwright.sync_api import Page, sync_playwright

from bench.large_console import MB, PASS_SECONDS, large_measured, large_objects
from bench.results import Figure
from lab.browser import chromium
from lab.network import free_port
from lab.process import wait_until
from tidegate.console.whatif import Edits, play_what_if, situation_of
from tidegate.view.policy import assumed_topology, policy_now, quotas_in_force
from tidegate_logic.model import Direction

BROKERS, MEMBERS = 50, 1000
_VIEWS, _UPDATES, _PLAYS, _REST_SECONDS = 5, 10, 3, 60
_CHARTS, _RANGES = 10, (("24 h", 86_400), ("1 h", 3600))
_DRAWN = (
    "(() => {{ const one = document.querySelector('figure[data-key=brokers]'); const drawn = "
    "JSON.parse(one.dataset.chart); return drawn.end - drawn.begin === {} && "
    "one.dataset.drawn === '{}'; }})()"
)
_ROWS = "document.querySelector('[data-count]')?.dataset.count === '{}'"


def console_figures() -> list[Figure]:
    """Bounds are for one viewer, with a pass every five seconds."""
    return [*_pages(), _what_if()]


def _pages() -> list[Figure]:
    foreign: list[str] = []
    with _served() as (server, address), sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page()
        here = (address, address.replace("http:", "ws:"), "data:")
        page.on(
            "request", lambda one: None if one.url.startswith(here) else foreign.append(one.url)
        )
        process = psutil.Process(server.pid)
        first = _view(page, address)
        began = _processor_seconds(process)
        views = [_view(page, address) for _ in range(_VIEWS)]
        viewed = _processor_seconds(process)
        updates = [_update(server, page, 6 + number) for number in range(_UPDATES)]
        updated = _processor_seconds(process)
        charts = [_chart(page, *_RANGES[number % 2]) for number in range(_CHARTS)]
        _chart(page, "15 min", 900)
        before = _processor_seconds(process)
        page.wait_for_timeout(_REST_SECONDS * 1000)
        after = _processor_seconds(process)
        resident = process.memory_info().rss
        browser.close()
    made = _REST_SECONDS / PASS_SECONDS * _making_seconds()
    used = after - before - made
    what = f"console, {BROKERS} brokers and {MEMBERS} members"
    return [
        Figure(
            f"{what}: first view, median of {_VIEWS}",
            median(views),
            "s",
            1.5,
            f"best {min(views):.2f} s, worst {max(views):.2f} s; the very first {first:.2f} s; "
            f"{(viewed - began) / _VIEWS:.2f} s of the console's processor each",
        ),
        Figure(
            f"{what}: from a pass to the page, median of {_UPDATES}",
            median(updates),
            "s",
            0.3,
            f"best {min(updates):.2f} s, worst {max(updates):.2f} s; "
            f"{(updated - viewed) / _UPDATES:.2f} s of the console's processor each",
        ),
        Figure(
            f"{what}: from the click to the chart of a day, median of {_CHARTS // 2}",
            median(charts[::2]),
            "s",
            1.0,
            f"best {min(charts[::2]):.2f} s, worst {max(charts[::2]):.2f} s; {2 * BROKERS} lines; "
            f"of an hour {median(charts[1::2]):.2f} s",
        ),
        Figure(f"{what}: memory with one viewer", resident / 1e6, "MB", 250),
        Figure(
            f"{what}: processor with one viewer",
            used / _REST_SECONDS,
            "cores",
            0.05,
            f"without {made / _REST_SECONDS:.3f} for making up what is read",
        ),
        Figure(f"{what}: requests that left the origin", len(foreign), "requests", 0),
    ]


@contextmanager
def _served() -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    port = free_port()
    argv = [sys.executable, "-m", "bench.large_console", str(BROKERS), str(MEMBERS), str(port)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: _listens(port), "the console", timeout_seconds=60)
            yield server, address
        finally:
            server.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _making_seconds() -> float:
    """The processor that one pass of the stand-in for Kubernetes and Prometheus takes."""
    begin = time.process_time()
    for number in range(5):
        large_objects(BROKERS, MEMBERS, 0.0)
        large_measured(BROKERS, MEMBERS, 0.0, seed=number)
    return (time.process_time() - begin) / 5


def _view(page: Page, address: str) -> float:
    begin = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(f".heat .tile >> nth={BROKERS - 1}")
    return time.perf_counter() - begin


def _update(server: "subprocess.Popen[bytes]", page: Page, throttled: int) -> float:
    """Members have a row for each way."""
    assert server.stdin is not None  # noqa: S101 - it was opened so
    assert server.stdout is not None  # noqa: S101
    server.stdin.write(f"{throttled}\n".encode())
    server.stdin.flush()
    server.stdout.readline()
    begin = time.perf_counter()
    page.wait_for_function(_ROWS.format(2 * throttled), polling=10)
    return time.perf_counter() - begin


def _chart(page: Page, words: str, seconds: int) -> float:
    """Until it is drawn in the browser, and not only sent."""
    begin = time.perf_counter()
    page.get_by_role("button", name=words, exact=True).click()
    page.wait_for_function(_DRAWN.format(seconds, 2 * BROKERS), polling=10)
    return time.perf_counter() - begin


def _what_if() -> Figure:
    seconds, processor = [], []
    now = time.time()
    seen = policy_now(
        large_objects(BROKERS, MEMBERS, now),
        "streaming/orders",
        large_measured(BROKERS, MEMBERS, now),
        now,
    )
    if seen is None or seen.declared is None or seen.declared.tiers is None:
        raise RuntimeError("the large cluster does not read")
    if seen.readings is None:
        raise RuntimeError("the large cluster has no readings")
    situation = situation_of(
        seen.declared.policy,
        seen.declared.tiers,
        assumed_topology(seen, seen.declared.tiers),
        seen.readings,
        quotas=quotas_in_force(seen),
    )
    for _ in range(_PLAYS):
        begin, used = time.perf_counter(), time.process_time()
        result = play_what_if(situation, Edits({Direction.EGRESS: 100 * MB}))
        seconds.append(time.perf_counter() - begin)
        processor.append(time.process_time() - used)
    return Figure(
        f"what if the egress limit were 100 MB/s, {BROKERS} brokers and {MEMBERS} members, "
        f"{result.seconds} simulated seconds: processor, median of {_PLAYS}",
        median(processor),
        "s",
        3.0,
        f"best {min(processor):.2f} s, worst {max(processor):.2f} s; by the clock "
        f"{median(seconds):.2f} s",
    )
