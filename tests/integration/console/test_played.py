"""The packaged evening in a real browser, from the command to its end and to that of its server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, expect

from lab.network import free_port
from lab.process import patience, wait_until

pytestmark = pytest.mark.integration


class Played:
    """`tidegate console --play` as a process of its own, at the highest speed."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
        command = [sys.executable, "-m", "tidegate", "console", "--play", "--speed=60"]
        self.process = subprocess.Popen(
            [*command, f"--port={self.port}"], env=environment, cwd=folder
        )

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(patience(30))


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    started = Played(tmp_path)
    yield started
    if started.process.poll() is None:
        started.end()


@pytest.fixture
def page(browser: Browser, played: Played) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1180, "height": 900})
    opened = context.new_page()

    def answers() -> bool:
        try:
            opened.goto(f"http://127.0.0.1:{played.port}/")
        except Error:
            return False
        return True

    wait_until(answers, "the played console", timeout_seconds=60)
    yield opened
    context.close()


def test_the_evening_ends_with_its_last_state_and_is_played_again(page: Page) -> None:
    expect(page.get_by_text("This load is simulated. No cluster is asked.")).to_be_visible()
    again = page.get_by_role("button", name="Play it again")
    expect(again).to_be_visible()
    expect(page.get_by_text("The simulated load is over.")).to_be_visible()
    verdict = page.locator(".banner .verdict")
    expect(verdict).to_contain_text("All brokers within limits - fullest is broker")
    expect(verdict).not_to_contain_text(" at 0 %")
    again.click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_text("This load is simulated.")).to_be_visible()


def test_a_verdict_is_grey_once_its_server_is_gone(page: Page, played: Played) -> None:
    banner = page.locator(".banner")
    expect(banner).to_have_css("filter", "none")
    played.end()
    expect(banner).to_have_css("filter", "grayscale(1)")
    expect(page.locator("#popup")).to_be_visible()
    expect(page).to_have_title("no connection - Tidegate")
