"""The console's web server: NiceGUI's pages behind a content policy, and who may see what.

NiceGUI is imported inside functions, so that no other command needs the extra. Every
answer forbids other origins. Requests are GET, but for the login form and NiceGUI's own channel;
towards Kubernetes, Prometheus and Kafka the console only reads.
"""

import asyncio
import gc
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

from tidegate.console.access import Refused
from tidegate.console.gate import COOKIE, Gate, login_page, status_of
from tidegate.console.pages import PAGES, ViewerPage
from tidegate.console.shared import Console as Console
from tidegate.console.shared import ConsoleSettings as ConsoleSettings
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from fastapi import FastAPI

_UPDATE_SECONDS: Final = 0.05
_NOTE_SECONDS: Final = 5.0
_COLLECTOR_THRESHOLDS: Final = (50_000, 20, 20)
_LAST_ANSWERS_SECONDS: Final = 5
_LONGEST_MESSAGE_BYTES: Final = 64 * 1024  # from a browser: clicks and what is typed


def make_app(console: Console) -> "FastAPI":
    """The whole application. NiceGUI keeps one for each process."""
    from fastapi import FastAPI, Query, Request
    from nicegui import app as nicegui_app
    from nicegui import ui
    from starlette.exceptions import HTTPException
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import PlainTextResponse

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(
        Gate,
        pages=[path for path, _ in PAGES],
        hosts=console.settings.hosts,
        sessions=console.sessions,
        let_in=console.let_in,
        is_page=console.is_page_of,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=console.settings.hosts)
    _add_logins(app, console)

    async def no_such_page(_: Request, error: Exception) -> PlainTextResponse:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return PlainTextResponse("there is no such page", status_code=status)

    # NiceGUI's own makes a page in memory for whatever is not there
    nicegui_app.add_exception_handler(404, no_such_page)

    # titles are those before the verdict is known, which comes with the page's content
    @ui.page("/", title="Tidegate")
    def now(request: Request, policy: str = "") -> None:
        ViewerPage(console, request, "/", policy).now()

    @ui.page("/broker", title="Tidegate: broker")
    def broker(request: Request, policy: str = "", broker: str = "") -> None:
        ViewerPage(console, request, "/broker", policy).broker(broker)

    @ui.page("/policies", title="Tidegate: policies")
    def policies(request: Request, policy: str = "") -> None:
        ViewerPage(console, request, "/policies", policy).policies()

    @ui.page("/member", title="Tidegate: member")
    def one_member(request: Request, policy: str = "", member: str = "") -> None:
        ViewerPage(console, request, "/member", policy).member(member)

    @ui.page("/what-if", title="Tidegate: what if")
    def what_if(request: Request, policy: str = "") -> None:
        ViewerPage(console, request, "/what-if", policy).what_if()

    @ui.page("/history", title="Tidegate: history")
    async def history(
        request: Request,
        policy: str = "",
        text: Annotated[str, Query(alias="filter", max_length=200)] = "",
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(console.reading, console.read_trail)
        ViewerPage(console, request, "/history", policy).history(text)

    loops: list[asyncio.Task[None]] = []

    async def keep_up_again_and_again() -> None:
        noted: object = None
        noted_at = 0.0
        while True:
            changes, seconds = console.source.changes(), time.monotonic()
            if changes != noted or seconds - noted_at >= _NOTE_SECONDS:
                noted, noted_at = changes, seconds
                with suppress(Exception):  # shown on the page; the next round may do
                    await asyncio.get_running_loop().run_in_executor(console.noting, console.note)
            console.keep_up()
            await asyncio.sleep(_UPDATE_SECONDS)

    nicegui_app.on_startup(lambda: loops.append(asyncio.create_task(keep_up_again_and_again())))
    ui.run_with(
        app,
        title="Tidegate",
        dark=None,
        language="en-US",
        tailwind=False,
        show_welcome_message=False,
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        favicon="🌊",
    )
    return app


def serve(console: Console) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    import uvicorn

    app = make_app(console)
    # a reading is ten thousands of objects that die without the collector's help, and the modules
    # of a web server, which stay for ever, are many more
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    uvicorn.run(
        app,
        host=console.settings.host,
        port=console.settings.port,
        proxy_headers=True,
        forwarded_allow_ips=list(console.settings.proxies),
        ws_max_size=_LONGEST_MESSAGE_BYTES,
        log_level="warning",
        access_log=False,
        server_header=False,
        # a page that is open keeps its connection, and the next process is waited for
        timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
    )


def _add_logins(app: "FastAPI", console: Console) -> None:
    """The probe's path, the login form, and the way out."""
    from fastapi import Request
    from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
    from starlette.responses import Response

    @app.get("/healthz")
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.get("/login")
    async def login() -> HTMLResponse:
        return HTMLResponse(login_page(""))

    @app.post("/login")
    async def log_in(request: Request) -> Response:
        let_in = console.let_in()
        if let_in is None:
            return RedirectResponse("/", 303)
        async with request.form(max_files=0, max_fields=10) as form:
            token = str(form.get("token", "")).strip()
        try:
            await let_in(token or None)
        except Refused as refused:
            return HTMLResponse(login_page(str(refused)), status_of(refused))
        except TidegateError as error:
            return HTMLResponse(login_page(error.message), 503)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE,
            console.sessions.begin(token),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
            max_age=8 * 3600,
        )
        return answer

    @app.post("/logout")
    async def log_out(request: Request) -> Response:
        """Its pages see it with their next change; a proxy's login is the proxy's to end."""
        if request.state.session is not None:
            console.sessions.end(request.state.session)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer
