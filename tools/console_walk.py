"""Walks the console in a browser while the demo's second experiment plays, and takes its pictures.

The demo runs beside it, with its own parts. What a person on call would look for is looked for, in
texts and roles: who is over, who is throttled and since when, the Events and audit lines of one
pass, one member, a limit that is tried out, and the way back. Run by `make console-walk`; pictures
and what was read are in `out/console-walk/`.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from playwright.sync_api import Error, Page, expect, sync_playwright

from lab.browser import chromium
from lab.errors import LabError
from lab.process import Process, patience, start, wait_until

OUT: Final = Path("out") / "console-walk"
_ADDRESS: Final = re.compile(r"in a browser: (http://\S+)")
_DEMO_SECONDS: Final = 1800.0


class Missed(Exception):
    """Something that should have been on a page was not, in time."""


def require(found: object, what: str) -> None:
    if not found:
        raise Missed(what)


@contextmanager
def watched_page(address: str) -> Iterator[Page]:
    """A browser's page for the console at this address. Raises Missed at the end where something
    went wrong in it, or it asked anybody but the console.
    """
    wrong: list[str] = []
    here = (address, address.replace("http:", "ws:"), "data:")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(60_000)  # of a machine that is busy with other parts
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda one: None if one.url.startswith(here) else wrong.append(one.url))
        yield page
        browser.close()
    require(not wrong, "; ".join(wrong))


def opened(page: Page, address: str) -> bool:
    """Whether the console showed a page. It does not while other parts start on all processors."""
    try:
        page.goto(address)
    except Error as error:
        print(f"not yet: {error.message.splitlines()[0]}", flush=True)
        return False
    return True


def in_short(page: Page) -> str:
    """The first lines of Now, in one; "" while they are not there."""
    short = page.get_by_role("list", name="In short")
    return short.inner_text().replace("\n", " | ") if short.count() else ""


def is_throttled(page: Page, level: str) -> bool:
    """Whether Now says that this level is throttled, in words and on its lane."""
    state = page.locator(f'tr[data-part="{level}"] .state')
    is_lower = state.count() > 0 and state.inner_text() in ("Throttled", "Recovering")
    return is_lower and bool(re.search(rf"{level} (throttled|recovering)", in_short(page)))


def _keep(page: Page, name: str, out: Path) -> None:
    page.screenshot(path=out / f"{name}.png")
    (out / f"{name}.txt").write_text(page.inner_text("body"), encoding="utf-8")


def look_at_every_page(page: Page, out: Path, *, limit: str, throttled: Sequence[str]) -> None:
    """Look at Now while L3 is throttled, then at the other pages; pictures go to `out`.

    `throttled` are the levels that `limit`, which is tried out, throttles. Raises as `walk` does.
    """
    short = in_short(page)
    require(re.search(r"L3 throttled: \S+.*since \d\d:\d\d:\d\d", short), short)
    members = page.get_by_role("region", name="Members").get_by_role("row")
    require(members.count() >= 2, "nobody is below the contract")
    judged = page.locator('.nic[data-state="Over"], .nic[data-state="Within"]')
    require(judged.count() >= 1, "no broker is judged")
    events = page.get_by_role("region", name="Events").first
    expect(events).to_contain_text("Throttled")
    row = events.get_by_role("row").filter(has_text="L3 is throttled").first
    pass_id = row.locator("td.pass").inner_text()
    require(re.fullmatch(r"[0-9a-f]{11}-[0-9a-f]{8}", pass_id), f"{pass_id!r} is no pass")
    expect(page.locator("[data-holder]")).to_contain_text("written by")
    _keep(page, "now", out)

    page.get_by_role("region", name="Members").get_by_role("link").first.click()
    page.wait_for_selector(".chart")
    page.get_by_role("button", name="Look at Kafka's quota levels").click()
    expect(page.locator(".levels .applies").first).to_contain_text("set by Tidegate")
    _keep(page, "member", out)

    page.get_by_role("link", name="History", exact=True).click()
    page.get_by_label("Filter").fill(pass_id)
    trail = page.get_by_role("region", name="Audit trail")
    expect(trail.get_by_role("row").nth(1)).to_contain_text(pass_id)
    # the heading alone is left without it
    expect(trail.get_by_role("row").filter(has_not_text=pass_id)).to_have_count(1)
    _keep(page, "history", out)

    page.get_by_role("link", name="What if", exact=True).click()
    page.get_by_label("Egress limit of every broker").fill(limit)
    page.get_by_role("button", name="Play ten minutes").click()
    answer = page.locator(".answer")
    expect(answer).to_contain_text("enough", timeout=patience(60) * 1000)
    for level in throttled:
        expect(answer).to_contain_text(f"{level} is throttled by")
    _keep(page, "what-if", out)


def walk(page: Page, address: str, demo: Process) -> None:
    """Look at every page once a level is throttled. Raises Missed, or what Playwright raises."""
    _until(lambda: opened(page, address), "the first page", demo, 600.0)
    seen: list[str] = []

    def note() -> str:
        state = in_short(page)
        if not seen or seen[-1] != state:
            seen.append(state)
            print(f"{time.strftime('%H:%M:%S')} {state}", flush=True)
        return state

    def l3_is_throttled() -> bool:
        note()
        return is_throttled(page, "L3")

    _until(l3_is_throttled, "L3 to be throttled", demo, _DEMO_SECONDS)
    look_at_every_page(page, OUT, limit="40M", throttled=("L3", "L2", "L1"))  # L0 alone is near it

    page.get_by_role("link", name="Now", exact=True).click()
    page.wait_for_selector(".answer")
    back = "All members are at their contracted rates"
    _until(lambda: back in note(), "all members to be back", demo, 900.0)
    _keep(page, "back", OUT)
    (OUT / "answers.txt").write_text("\n".join(seen) + "\n", encoding="utf-8")


def _until(condition: Callable[[], object], what: str, demo: Process, seconds: float) -> None:
    wait_until(condition, what, timeout_seconds=seconds, processes=[demo], poll_seconds=0.5)


def main() -> int:
    """Start the demo and walk; the demo goes on to its end."""
    OUT.mkdir(parents=True, exist_ok=True)
    log = OUT / "demo.log"
    log.unlink(missing_ok=True)
    environment = {"DEMO": os.environ.get("DEMO", "quick"), "COLUMNS": "200"}
    argv = [sys.executable, "-m", "demo"]
    with start("demo", argv, log_path=log, environment=environment, niceness=0) as demo:
        try:
            _until(lambda: _ADDRESS.search(log.read_text()), "the console's address", demo, 900.0)
            (address,) = _ADDRESS.findall(log.read_text())
            with watched_page(address) as page:
                walk(page, address, demo)
        except (LabError, Missed, AssertionError, Error) as missed:
            print(f"console-walk: {missed}", file=sys.stderr)
            return 1
        finally:
            with suppress(LabError):
                demo.wait(_DEMO_SECONDS)
        print(f"demo ended with {demo.exit_code}; what was read is in {OUT}")
        return demo.exit_code or 0


if __name__ == "__main__":
    sys.exit(main())
