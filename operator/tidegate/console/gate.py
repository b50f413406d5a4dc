"""What of a request reaches the pages: paths that there are, from our own pages, small, by viewers.

In front of NiceGUI, as ASGI: it makes a page of its own for each path that it does not know, and
reads forms of any size. Nothing here waits for the API server; `let_in` does that, in threads.
"""

import asyncio
import re
import secrets as random_names
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from markupsafe import Markup

from tidegate.console.access import Allowance, Refused, TooManyUnknown
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

COOKIE: Final = "tidegate-console"
_LONGEST_BODY_BYTES: Final = 64 * 1024
_BODY_SECONDS: Final = 10.0
_MOST_SESSIONS: Final = 1000
# Connections that name no page that there is: after a restart each open page makes one and reloads.
_STRANGERS_PER_SECOND: Final = 20.0
_STRANGERS_BURST: Final = 200
_CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        # NiceGUI's page starts with scripts of its own in it, and Vue compiles templates
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    # with `no-referrer` browsers would send `Origin: null` with our own form
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_RAW_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
_CHANNEL: Final = "/_nicegui_ws/"
# what NiceGUI's pages load, and nothing else below its folder
_ASSET: Final = re.compile(
    r"/_nicegui/[0-9][0-9A-Za-z.]*/(static|libraries|components|resources|esm|dynamic_resources)/."
)
_FOR_ALL: Final = frozenset({"/login", "/logout", "/healthz", "/favicon.ico"})
_POSTED: Final = frozenset({"/login", "/logout"})

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Sessions:
    """Tokens that were typed in, by the random name in the cookie; beyond 1000 the oldest go."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[str, str] = OrderedDict()

    def begin(self, token: str) -> str:
        session = random_names.token_urlsafe(32)
        self._tokens[session] = token
        while len(self._tokens) > _MOST_SESSIONS:
            self._tokens.popitem(last=False)
        return session

    def end(self, session: str) -> None:
        self._tokens.pop(session, None)

    def token(self, session: str) -> str | None:
        return self._tokens.get(session)

    def __contains__(self, session: str) -> bool:
        return session in self._tokens


class Gate:
    """Answers what must not reach the pages; what may carries `state.token` and `state.session`.

    `let_in` is None if nobody logs in. It raises Refused and from tidegate.errors. `is_page` is
    asked with a page's random id and the token that a connection has: a page is its viewer's.
    """

    def __init__(
        self,
        app: App,
        *,
        pages: Iterable[str],
        hosts: Iterable[str],
        sessions: Sessions,
        let_in: Callable[[], Callable[[str | None], Awaitable[object]] | None],
        is_page: Callable[[str, str | None], bool],
    ) -> None:
        self._app = app
        self._pages = frozenset(pages)
        self._hosts = frozenset(hosts)
        self._sessions = sessions
        self._let_in = let_in
        self._is_page = is_page
        self._strangers = Allowance(_STRANGERS_PER_SECOND, _STRANGERS_BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        from starlette.requests import HTTPConnection

        connection = HTTPConnection(scope)
        refusal = self._refusal(scope, connection)
        if refusal is None and scope["type"] == "http":
            try:
                receive = await _small_body(scope, connection, receive)
            except (ValueError, TimeoutError):
                refusal = 413, f"at most {_LONGEST_BODY_BYTES // 1024} kB"
        if refusal is not None:
            await _refuse(scope, receive, send, *refusal)
            return
        token, session = self._token(connection)
        scope.setdefault("state", {}).update(token=token, session=session)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in _RAW_HEADERS}
                kept = [one for one in message.get("headers", ()) if one[0].lower() not in names]
                message = {**message, "headers": [*kept, *_RAW_HEADERS]}
            await send(message)

        answer = await self._asked_to_log_in(scope["path"], token)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, connection: "HTTPConnection") -> tuple[int, str] | None:
        path = scope["path"]
        is_channel = path.startswith(_CHANNEL)
        if not is_channel and path not in self._pages | _FOR_ALL and not _ASSET.match(path):
            return 404, "there is no such page"
        if scope["type"] == "websocket" and not is_channel:
            return 404, "there is no such page"
        is_reading = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        is_posted = path in _POSTED and scope.get("method") == "POST"
        if not (is_reading or is_channel or is_posted):
            return 405, "only GET"
        if (is_channel or not is_reading) and not self._is_of_our_pages(connection):
            return 403, "only from the console's own pages"
        if is_channel:
            query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
            token, _ = self._token(connection)
            is_known = "sid" in query or self._is_page(query.get("client_id", [""])[0], token)
            if not is_known:
                if not self._strangers.take():
                    return 429, "too many pages connect right now"
                # NiceGUI refuses that at once, and the browser asks for its page again
                query |= {"client_id": ["none"], "implicit_handshake": ["true"]}
                scope["query_string"] = urlencode(query, doseq=True).encode("latin-1")
        return None

    def _is_of_our_pages(self, connection: "HTTPConnection") -> bool:
        """By what browsers say and no page can forge. Programs say nothing of it, and may."""
        origin = connection.headers.get("origin")
        site = connection.headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            return False
        if origin is None or (site is not None and origin == "null"):
            return True
        address = urlsplit(origin)
        host = connection.headers.get("host", "")
        # a proxy in front may have named another host, so a name that browsers may use will do
        is_named = address.hostname in self._hosts - {"localhost", "127.0.0.1", "[::1]"}
        return bool(address.netloc) and (address.netloc == host or is_named)

    def _token(self, connection: "HTTPConnection") -> tuple[str | None, str | None]:
        """The token that a proxy or a program sends, or that of a login here with its session."""
        header = connection.headers.get("authorization", "")
        if header.lower().startswith("bearer "):
            return header[7:].strip() or None, None
        session = connection.cookies.get(COOKIE, "")
        token = self._sessions.token(session)
        return token, (session if token is not None else None)

    async def _asked_to_log_in(self, path: str, token: str | None) -> App | None:
        """The answer to someone who does not see this page, or None."""
        from starlette.responses import HTMLResponse, RedirectResponse

        let_in = self._let_in()
        if let_in is None or path not in self._pages:
            return None
        try:
            await let_in(token)
        except Refused as refused:
            if token is None:
                return RedirectResponse("/login", 303)
            return HTMLResponse(login_page(str(refused)), status_of(refused))
        except TidegateError as error:
            return HTMLResponse(login_page(error.message), 503)
        return None


def status_of(refused: Refused) -> int:
    return 429 if isinstance(refused, TooManyUnknown) else 401


async def _small_body(scope: Scope, connection: "HTTPConnection", receive: Receive) -> Receive:
    """The body, read here. Raises ValueError if it is too long, TimeoutError if too slow."""
    length = connection.headers.get("content-length", "0")
    has_body = length != "0" or "transfer-encoding" in connection.headers
    if not has_body and scope["method"] in ("GET", "HEAD"):
        return receive
    if not length.isdecimal() or int(length) > _LONGEST_BODY_BYTES:
        raise ValueError(length)
    body, more = b"", True
    async with asyncio.timeout(_BODY_SECONDS):
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False) and message["type"] == "http.request"
            if len(body) > _LONGEST_BODY_BYTES:
                raise ValueError(len(body))
    read: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return read.pop() if read else await receive()

    return receive_again


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, words: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    from starlette.responses import PlainTextResponse

    # what is left of the body is not read
    headers = _HEADERS | ({"Connection": "close"} if status == 413 else {})
    await PlainTextResponse(words, status, headers)(scope, receive, send)


def login_page(problem: str) -> str:
    """The form, in HTML that needs nothing of NiceGUI's."""
    said = Markup('<p role="alert">{}</p>').format(problem) if problem else Markup("")
    return str(
        Markup(
            '<!doctype html><html lang="en"><head><title>Tidegate: log in</title><meta '
            'name="viewport" content="width=device-width"></head><body><main class="login" '
            'style="max-width:560px;margin:40px auto;font-family:sans-serif"><h1>Tidegate</h1>'
            '{}<form method="post" action="/login"><label for="token">Your token for this '
            "Kubernetes cluster (<code>kubectl create token ACCOUNT</code>, or the one of your "
            'login)</label><br><input id="token" name="token" type="password" autocomplete="off" '
            'style="width:100%" required><p><button type="submit">Log in</button></p></form>'
            "<p>You see the policies, tiers and overrides of the namespaces in which you may read "
            "them. The token stays in this process's memory.</p></main></body></html>"
        ).format(said)
    )
