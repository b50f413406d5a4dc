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
from tools.console_walk import is_throttled, opened, require, watched_page

PICTURE: Final = Path("docs") / "pictures" / "console.png"
_SPEED: Final = 20
_SHOWN_AT_SECONDS: Final = 620  # of the evening: both levels are throttled, for what Why names
_WAIT_MS: Final = 120_000


def main() -> None:
    """Play, stop when two levels are throttled, and take the picture."""
    port = free_port()
    address = f"http://127.0.0.1:{port}/"
    options = ["--play", f"--port={port}", f"--speed={_SPEED}"]
    command = [sys.executable, "-m", "tidegate", "console", *options]
    console = subprocess.Popen(command)  # noqa: S603  # our own
    try:
        with watched_page(address) as page:
            page.set_viewport_size({"width": 1180, "height": 760})
            while not opened(page, address):
                page.wait_for_timeout(500)
            page.wait_for_timeout(1000 * _SHOWN_AT_SECONDS / _SPEED)
            short = page.get_by_role("list", name="In short")
            for level in ("L3", "L2"):
                row = short.get_by_role("listitem").filter(has_text=f"{level} throttled")
                expect(row).to_contain_text(
                    re.compile("Why: broker .* at .*; now "), timeout=_WAIT_MS
                )
            page.get_by_role("button", name="Pause").click()
            page.wait_for_timeout(1000)
            require(is_throttled(page, "L3"), "L3 throttled with L2")
            page.screenshot(path=PICTURE)
    finally:
        console.send_signal(signal.SIGINT)
        console.wait(30)


if __name__ == "__main__":
    main()
