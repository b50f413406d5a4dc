"""Takes the README's picture of the console, while the packaged evening plays in it.

Run by `make console-picture`; the picture is docs/pictures/console.png. The evening gives the same
state each time, but for the time of day.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import expect

from lab.network import free_port
from tools.console_walk import opened, watched_page

PICTURE: Final = Path("docs") / "pictures" / "console.png"
_BOTH_THROTTLED: Final = re.compile(
    "L3 throttled: .* Why: broker .* at .* UTC, .* at .*; now .*L2 throttled: .* Why: broker .* at "
)
_WAIT_MS: Final = 240_000


def main() -> None:
    """Play, stop when two levels are throttled again, and take the picture."""
    port = free_port()
    address = f"http://127.0.0.1:{port}/"
    options = ["--play", f"--port={port}", "--speed=5"]  # a busy machine misses no state
    command = [sys.executable, "-m", "tidegate", "console", *options]
    console = subprocess.Popen(command)  # noqa: S603  # our own
    try:
        with watched_page(address) as page:
            page.set_viewport_size({"width": 1180, "height": 760})
            expect.set_options(timeout=_WAIT_MS)
            while not opened(page, address):
                page.wait_for_timeout(500)
            short = page.get_by_role("list", name="In short")
            # the second time, so that the chart has some minutes: Why has both readings
            expect(short).to_contain_text(_BOTH_THROTTLED)
            page.get_by_role("button", name="Pause").click()
            expect(page.get_by_role("button", name="Play on")).to_be_visible()
            expect(page.locator(".banner")).to_have_css("filter", "none")  # it is connected
            expect(short).to_contain_text(_BOTH_THROTTLED)
            page.wait_for_timeout(1000)
            page.screenshot(path=PICTURE)
    finally:
        console.send_signal(signal.SIGINT)
        console.wait(30)


if __name__ == "__main__":
    main()
