"""Makes README's moving picture of the console: the packaged evening, from calm to calm.

Run by `make console-picture`; the picture is docs/pictures/console.gif, and its frame with two
levels throttled is docs/pictures/console.png. They are the same each time.
"""

import io
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

import uvicorn
from PIL import Image
from playwright.sync_api import Page, expect

from lab.network import free_port
from tidegate.commands.console import EVENING
from tidegate.commands.played_load import PlayedSource, moments
from tidegate.commands.simulation_file import read_simulation
from tidegate.console.server import Console, ConsoleSettings, make_app
from tools.console_walk import is_throttled, opened, require, watched_page

PICTURES: Final = Path("docs") / "pictures"
_BEGUN_SECONDS: Final = 1_800_000_000.0  # 08:00 UTC
# Calm; L3 and L2 throttled; L2 recovering; a second load, not yet enough; enough; recovering; calm
_FRAMES_AT_SECONDS: Final = (240.0, 360.0, 480.0, 580.0, 640.0, 900.0, 1000.0, 1270.0)
_STILL_AT_SECONDS: Final = 640.0
_FRAME_MS: Final = 2000
_SPEED: Final = 20
_WAIT_MS: Final = 240_000  # of a busy machine


def main() -> None:
    """Play the evening, stop at each frame's second, and join what the page shows then."""
    given = read_simulation([str(EVENING)], policy=None, standard_input=sys.stdin)
    scenario = replace(given.scenario, epoch_seconds=_BEGUN_SECONDS)
    passes = moments(scenario, given.policy, given.tiers)
    clock = [0.0]
    source = PlayedSource(passes, _BEGUN_SECONDS, _SPEED, monotonic=lambda: clock[0])
    settings = ConsoleSettings(port=free_port())
    console = Console(source, settings=settings, player=source)
    server = uvicorn.Server(
        uvicorn.Config(make_app(console), port=settings.port, log_level="error")
    )
    threading.Thread(target=server.run, daemon=True).start()
    address = f"http://127.0.0.1:{settings.port}/"
    frames = []
    waiting = [one.at_seconds for one in passes if one.at_seconds >= 0]
    with watched_page(address) as page:
        page.set_viewport_size({"width": 1180, "height": 760})
        expect.set_options(timeout=_WAIT_MS)
        page.set_default_timeout(_WAIT_MS)
        for frame_at_seconds in _FRAMES_AT_SECONDS:
            while waiting and waiting[0] <= frame_at_seconds:
                clock[0] = waiting.pop(0) / _SPEED
                console.note()
            frames.append(_shown(page, address))
            if frame_at_seconds == _STILL_AT_SECONDS:
                require(is_throttled(page, "L3") and is_throttled(page, "L2"), "L3, L2 throttled")
                (PICTURES / "console.png").write_bytes(frames[-1])
    server.should_exit = True
    _join([Image.open(io.BytesIO(one)).convert("RGB") for one in frames])


def _shown(page: Page, address: str) -> bytes:
    """The page as a new viewer has it now."""
    while not opened(page, address):
        page.wait_for_timeout(500)
    expect(page.locator("figure[data-drawn='3'] canvas")).to_be_visible()
    expect(page.locator(".banner")).to_have_css("filter", "none")  # it is connected
    return page.screenshot()


def _join(frames: list[Image.Image]) -> None:
    """Write them as a GIF of one palette, so that what stays the same is stored once."""
    wide = Image.new("RGB", (frames[0].width, sum(one.height for one in frames)))
    for number, one in enumerate(frames):
        wide.paste(one, (0, number * one.height))
    palette = wide.quantize(256, dither=Image.Dither.NONE)
    plain = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in frames]
    plain[0].save(
        PICTURES / "console.gif",
        save_all=True,
        append_images=plain[1:],
        duration=_FRAME_MS,
        loop=0,
        optimize=False,
    )


if __name__ == "__main__":
    main()
