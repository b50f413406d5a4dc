"""What somebody without a login, or an API server that stands still, does to the served console."""

from __future__ import annotations

import threading
import time

import pytest
import requests
from nicegui import Client

from lab.process import patience
from tests.integration.console.conftest import Reviews, Shown

pytestmark = pytest.mark.integration


def test_unknown_paths_and_uploads_leave_nothing_in_memory(shown: Shown, reviews: Reviews) -> None:
    before = len(Client.instances)
    session = requests.Session()
    headers = {"Authorization": "Bearer good"}
    for number in range(100):
        for path in (f"/_nicegui/x{number}", f"/x{number}", f"/_nicegui/3.18.0/esm/x{number}"):
            for sent in ({}, headers):
                answer = session.get(shown.address + path, headers=sent, timeout=patience(10))
                assert answer.status_code == 404
    assert len(Client.instances) <= before
    files = {"token": ("a", b"a" * (1 << 20))}
    answer = requests.post(f"{shown.address}/login", files=files, timeout=patience(10))
    assert answer.status_code == 413


def test_the_probe_and_open_sessions_go_on_while_reviews_stand_still(
    shown: Shown, reviews: Reviews
) -> None:
    person = requests.Session()
    assert person.post(f"{shown.address}/login", data={"token": "good"}, timeout=patience(20)).ok
    reviews.goes_on.clear()

    def log_in() -> None:
        requests.post(f"{shown.address}/login", data={"token": "bad"}, timeout=patience(90))

    strangers = [threading.Thread(target=log_in, daemon=True) for _ in range(40)]
    for one in strangers:
        one.start()
    for _ in range(20):
        begin = time.monotonic()
        assert requests.get(f"{shown.address}/healthz", timeout=patience(10)).ok
        assert time.monotonic() - begin < patience(1.0)
    assert "streaming" in person.get(shown.address, timeout=patience(20)).text  # by what is known
    reviews.goes_on.set()
    for one in strangers:
        one.join(patience(60))


def test_after_a_logout_the_session_opens_nothing(shown: Shown, reviews: Reviews) -> None:
    person = requests.Session()
    assert (
        "Log out"
        in person.post(f"{shown.address}/login", data={"token": "good"}, timeout=patience(20)).text
    )
    cookies = {one.name: str(one.value) for one in person.cookies}
    person.post(f"{shown.address}/logout", timeout=patience(20))
    again = requests.get(
        shown.address, cookies=cookies, timeout=patience(20), allow_redirects=False
    )
    assert (again.status_code, again.headers["location"]) == (303, "/login")
