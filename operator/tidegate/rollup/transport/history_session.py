"""The operator's session with what only history needs: answers handed out unread, a token from a file, a certificate of our own."""

import os
from pathlib import Path
from typing import Any

import requests
from requests.auth import AuthBase

from tidegate.prometheus.client import Session
from tidegate.rollup.transport.settings import HistorySettings


class HistorySession(Session):
    """A session for one server. Nothing comes from the environment, nothing is compressed, no redirect is followed."""

    def __init__(self, settings: HistorySettings) -> None:
        super().__init__(settings.server)
        self.headers.update(settings.headers)
        if settings.token_file is not None:
            self.auth = _TokenFile(Path(settings.token_file))
        if settings.client_certificate is not None:
            self.cert = settings.client_certificate.certificate_file, settings.client_certificate.key_file

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """The answer itself, its body unread; the operator's session wraps it for a library that is not used here."""
        return requests.Session.send(self, request, **{**kwargs, "stream": True})


class _TokenFile(AuthBase):
    """Kubernetes replaces such a file before its token expires, so it is read again whenever it is another file or a newer one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = ""

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        r.headers["Authorization"] = f"Bearer {self._current()}"
        return r

    def _current(self) -> str:
        found = os.stat(self._path)
        seen = found.st_ino, found.st_mtime_ns
        if seen != self._seen:
            token = self._path.read_text(encoding="utf-8").strip()
            if not (token and token.isascii() and token.isprintable()):
                raise requests.exceptions.InvalidHeader("the token has signs that no header can carry")
            self._token, self._seen = token, seen
        return self._token
