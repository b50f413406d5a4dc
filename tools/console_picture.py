"""Takes the README's picture of the console, while the example's evening plays in it.

Run by `make console-picture`; the picture is docs/pictures/console.png. The same file gives the
same state each time, but for the time of day.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import expect

from lab.network import free_port
from tools.console_walk import is_throttled, opened, require, watched_page

PICTURE: Final = Path("docs") / "pictures" / "console.png"
_FILE: Final = "examples/simulate/evening-backfill.yaml"
_WAIT_MS: Final = 120_000


def main() -> None:
    """Play, stop when two levels are throttled, and take the picture."""
    port = free_port()
    address = f"http://127.0.0.1:{port}/"
    command = [sys.executable, "-m", "tidegate", "console", "--play", _FILE, f"--port={port}"]
    console = subprocess.Popen(command)  # noqa: S603  # our own
    try:
        with watched_page(address) as page:
            page.set_viewport_size({"width": 1180, "height": 760})
            while not opened(page, address):
                page.wait_for_timeout(500)
            expect(page.get_by_role("list", name="In short")).to_contain_text(
                "L2 throttled", timeout=_WAIT_MS
            )
            page.wait_for_timeout(3000)  # until the first cut is seen in the rates
            page.get_by_role("button", name="Pause").click()
            page.wait_for_timeout(1000)
            require(is_throttled(page, "L3"), "L3 throttled with L2")
            page.screenshot(path=PICTURE)
    finally:
        console.send_signal(signal.SIGINT)
        console.wait(30)


if __name__ == "__main__":
    main()
