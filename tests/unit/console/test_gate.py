"""What of requests by strangers reaches the pages, with a page that counts: no socket, no NiceGUI."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs

import pytest

from tidegate.console.access import Refused
from tidegate.console.gate import COOKIE, Gate, Sessions

VERSION = "/_nicegui/3.18.0"


class Pages:
    """Stands for NiceGUI: counts what reached it, and the bytes of bodies."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.queries: list[str] = []
        self.bytes = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.append(scope["path"])
        self.queries.append(scope["query_string"].decode())
        if scope["type"] == "http":
            message = await receive()
            self.bytes += len(message.get("body", b""))
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"page"})


class Front:
    def __init__(self) -> None:
        self.pages, self.sessions = Pages(), Sessions()
        self.asked = 0
        self.open_pages: set[tuple[str, str | None]] = {("there", None), ("good's", "good")}
        self.gate = Gate(
            self.pages,
            pages=["/", "/history"],
            hosts=["localhost", "console.example"],
            sessions=self.sessions,
            let_in=lambda: self._let_in,
            is_page=lambda client_id, token: (client_id, token) in self.open_pages,
        )

    async def _let_in(self, token: str | None) -> None:
        self.asked += 1
        if token != "good":
            raise Refused("no")

    def answer(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        body: tuple[bytes, ...] = (b"",),
        kind: str = "http",
        **headers: str,
    ) -> int:
        """The status; of a websocket 200 where it went through, else 403."""
        sent: list[Any] = []
        chunks = list(body)

        async def receive() -> dict[str, Any]:
            if kind == "websocket":
                return {"type": "websocket.connect"}
            return {
                "type": "http.request",
                "body": chunks.pop(0) if chunks else b"",
                "more_body": bool(chunks),
            }

        async def send(message: Any) -> None:
            sent.append(message)

        raw = [
            (name.replace("_", "-").encode(), value.encode())
            for name, value in ({"host": "localhost:8090"} | headers).items()
        ]
        scope = {
            "type": kind,
            "path": path,
            "query_string": query.encode(),
            "headers": raw,
            **({"method": method} if kind == "http" else {}),
        }
        asyncio.run(self.gate(scope, receive, send))
        if not sent:
            return 200
        if sent[0]["type"] == "websocket.close":
            return 403
        names = {name for name, _ in sent[0]["headers"]}
        assert b"content-security-policy" in names
        return int(sent[0]["status"])


@pytest.fixture
def front() -> Front:
    return Front()


@pytest.mark.parametrize(
    "path",
    ["/_nicegui", "/_nicegui/x1", "/_nicegui/client/1/upload/2", f"{VERSION}/static", f"{VERSION}/x/y",
     "/healthzz", "/loginx", "/metrics", "/docs", "//", "/_nicegui/auto/static/a/b", "/nope"],
)  # fmt: skip
def test_a_path_that_no_page_uses_ends_in_front_of_nicegui(front: Front, path: str) -> None:
    assert front.answer("GET", path) == 404
    assert front.answer("GET", path, cookie=f"{COOKIE}=x") == 404
    assert front.pages.reached == []


def test_pages_need_a_login_and_what_they_load_does_not(front: Front) -> None:
    assert front.answer("GET", "/") == 303
    assert front.answer("GET", "/", authorization="Bearer bad") == 401
    assert front.pages.reached == []
    assert front.answer("GET", "/", authorization="Bearer good") == 200
    session = front.sessions.begin("good")
    assert front.answer("GET", "/history", cookie=f"{COOKIE}={session}") == 200
    front.sessions.end(session)
    assert front.answer("GET", "/history", cookie=f"{COOKIE}={session}") == 303
    for path in (f"{VERSION}/static/vue.js", f"{VERSION}/components/live", "/healthz"):
        assert front.answer("GET", path) == 200
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert front.answer(method, "/", authorization="Bearer good") == 405


def test_bodies_are_small_whatever_they_say_of_themselves(front: Front) -> None:
    whole = 64 * 1024
    assert front.answer("POST", "/login", body=(b"a" * whole,)) == 200
    before = front.pages.bytes
    assert before == whole
    large = str(100 << 20)
    for headers in ({"content_length": large}, {"content_length": "-1"}, {"content_length": "x"}):
        assert front.answer("POST", "/login", **headers) == 413
    chunks = (b"a" * whole,) * 1600
    assert front.answer("POST", "/login", body=chunks, transfer_encoding="chunked") == 413
    assert front.answer("GET", "/login", body=chunks, transfer_encoding="chunked") == 413
    form = "multipart/form-data; boundary=X"
    assert front.answer("POST", "/login", body=chunks, content_type=form) == 413
    assert front.answer("POST", "/_nicegui_ws/socket.io/", query="sid=1", body=chunks) == 413
    assert front.pages.bytes == before


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),  # a program
        ({"origin": "http://localhost:8090"}, 200),
        ({"origin": "https://console.example"}, 200),  # a proxy in front names another host
        ({"origin": "http://localhost:9999"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "null", "sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site", "origin": "http://localhost:8090"}, 403),
        ({"origin": "https://evil.example", "sec_fetch_site": "same-origin"}, 403),
    ],
)
def test_only_our_own_pages_post_and_connect(
    front: Front, headers: dict[str, str], status: int
) -> None:
    assert front.answer("POST", "/login", **headers) == status
    assert front.answer("POST", "/logout", **headers) == status
    channel = "/_nicegui_ws/socket.io/"
    assert front.answer("", channel, query="client_id=there", kind="websocket", **headers) == status
    assert front.answer("GET", channel, query="client_id=there", **headers) == status


def test_connections_for_pages_that_are_not_there_are_let_in_at_a_rate(front: Front) -> None:
    channel = "/_nicegui_ws/socket.io/"
    statuses = [front.answer("GET", channel, query="EIO=4&client_id=x") for _ in range(400)]
    assert 200 <= statuses.count(200) <= 350
    assert statuses.count(429) == 400 - statuses.count(200)
    assert front.answer("GET", channel, query="EIO=4&client_id=there") == 200


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_page_is_connected_to_by_its_viewer_alone(front: Front, kind: str) -> None:
    """Others reach NiceGUI with the name of no page, whose answer has a browser ask again."""
    session, other = front.sessions.begin("good"), front.sessions.begin("another")
    ended = front.sessions.begin("good")
    front.sessions.end(ended)
    asked = "EIO=4&transport=websocket&implicit_handshake=true&client_id="

    def named(query: str, **headers: str) -> list[str]:
        answer = front.answer("GET", "/_nicegui_ws/socket.io/", query=query, kind=kind, **headers)
        assert answer == 200
        sent = front.pages.queries[-1]
        assert "EIO=4&transport=websocket" in sent
        found = parse_qs(sent)
        assert found["implicit_handshake"] == ["true"]  # so that NiceGUI refuses it at once
        return found.get("client_id", [])

    for headers in ({"cookie": f"{COOKIE}={session}"}, {"authorization": "Bearer good"}):
        assert named(f"{asked}good%27s", **headers) == ["good's"]
    strangers: list[dict[str, str]] = [
        {},
        {"cookie": f"{COOKIE}={other}"},
        {"cookie": f"{COOKIE}={ended}"},
        {"cookie": f"{COOKIE}=good"},
        {"authorization": "Bearer another"},
        # the header is what counts, as it does for pages
        {"authorization": "Bearer another", "cookie": f"{COOKIE}={session}"},
        {"authorization": "Bearer ", "cookie": f"{COOKIE}={session}"},
    ]
    for headers in strangers:
        assert named(f"{asked}good%27s", **headers) == ["none"]
        assert named(f"{asked}x&client_id=good%27s", **headers) == ["none"]
        assert named("EIO=4&transport=websocket", **headers) == ["none"]
