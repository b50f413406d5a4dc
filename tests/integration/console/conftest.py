"""One console and one browser for all tests of its pages; each test shows a source of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from lab.browser import chromium
from lab.process import patience, wait_until
from tests.doubles.simulated_console import SimulatedSource, stopped_at
from tidegate.console.server import Console, ConsoleSettings, make_app


@dataclass
class Shown:
    """The console that is served: a test puts what it wants to see into it."""

    console: Console
    address: str

    def show(self, console: Console, source: SimulatedSource) -> SimulatedSource:
        self.console.source = source
        self.console.history = console.history
        self.console.access = None
        return source


@pytest.fixture(scope="session")
def shown() -> Iterator[Shown]:
    console, _ = stopped_at(10)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    console.settings = ConsoleSettings(port=port)
    server = uvicorn.Server(
        uvicorn.Config(make_app(console), port=port, log_level="error", ws="websockets-sansio")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the console's server", timeout_seconds=30)
    yield Shown(console, f"http://127.0.0.1:{port}")
    server.should_exit = True
    thread.join(timeout=patience(10))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield opened
        opened.close()


@dataclass
class Watched:
    """A page, with whatever it asked of others and whatever went wrong in it."""

    page: Page
    foreign: list[str]
    errors: list[str]


@pytest.fixture
def watched(browser: Browser, shown: Shown) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    page = context.new_page()
    # A page waits for what should come: how long that takes is the machine's affair, not the page's.
    page.set_default_timeout(1000 * patience(60))
    expect.set_options(timeout=1000 * patience(60))
    foreign: list[str] = []
    errors: list[str] = []
    here = (shown.address, shown.address.replace("http:", "ws:"), "data:")
    page.on(
        "request", lambda one: foreign.append(one.url) if not one.url.startswith(here) else None
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    yield Watched(page, foreign, errors)
    context.close()
    assert foreign == []
    assert errors == []
