"""Takes the README's picture of the console: the packaged evening, stopped while two levels are
throttled again.

Run by `make console-picture`; the picture is docs/pictures/console.png. It is the same each time.
"""

import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

import uvicorn
from playwright.sync_api import expect

from lab.network import free_port
from tidegate.commands.console import EVENING
from tidegate.commands.played_load import PlayedSource, moments
from tidegate.commands.simulation_file import read_simulation
from tidegate.console.server import Console, ConsoleSettings, make_app
from tools.console_walk import is_throttled, opened, require, watched_page

PICTURE: Final = Path("docs") / "pictures" / "console.png"
_BEGUN_SECONDS: Final = 1_800_000_000.0  # 08:00 UTC
_SHOWN_AT_SECONDS: Final = 640.0
_SPEED: Final = 20
_WAIT_MS: Final = 240_000  # of a busy machine


def main() -> None:
    """Play up to that second, stop, and take the picture."""
    given = read_simulation([str(EVENING)], policy=None, standard_input=sys.stdin)
    scenario = replace(given.scenario, epoch_seconds=_BEGUN_SECONDS)
    passes = moments(scenario, given.policy, given.tiers)
    clock = [0.0]
    source = PlayedSource(passes, _BEGUN_SECONDS, _SPEED, monotonic=lambda: clock[0])
    settings = ConsoleSettings(port=free_port())
    console = Console(source, settings=settings, player=source)
    for one in passes:
        if 0 <= one.at_seconds <= _SHOWN_AT_SECONDS:
            clock[0] = one.at_seconds / _SPEED
            console.note()
    source.pause()
    server = uvicorn.Server(
        uvicorn.Config(make_app(console), port=settings.port, log_level="error")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{settings.port}/"
    with watched_page(address) as page:
        page.set_viewport_size({"width": 1180, "height": 760})
        expect.set_options(timeout=_WAIT_MS)
        page.set_default_timeout(_WAIT_MS)
        while not opened(page, address):
            page.wait_for_timeout(500)
        expect(page.locator("figure[data-drawn='3'] canvas")).to_be_visible()
        expect(page.locator(".banner")).to_have_css("filter", "none")  # it is connected
        require(is_throttled(page, "L3") and is_throttled(page, "L2"), "L3 and L2 throttled")
        page.screenshot(path=PICTURE)
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
