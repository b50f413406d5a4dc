"""What every request to Prometheus gets from us: login, authorities, no redirects, no compression, and its answer unread.

The client library asks through this session and would read any answer whole and without bounds; here it is handed the answer as a
stream instead, for `client` to read within its limits. What goes wrong is not judged here.
"""

import ssl
from typing import Any

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from tidegate import __version__
from tidegate.prometheus.settings import BasicLogin, BearerLogin, PrometheusServer


class Session(requests.Session):
    """A session for one server; raises InvalidHeader for a token that cannot be sent.

    Nothing comes from the environment: no proxy, no .netrc, no other authorities.
    """

    def __init__(self, server: PrometheusServer) -> None:
        super().__init__()
        self.trust_env = False
        self.verify = server.ca_file or _own_authorities()
        # Compressing costs the server ten times what sending does, and a packed answer may unpack to any size.
        self.headers.update({"Accept-Encoding": "identity", "User-Agent": f"tidegate/{__version__}"})
        self.auth = _authorization(server.login)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        return _UnreadAnswer(super().send(request, **{**kwargs, "stream": True}))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Nowhere: a redirect leads to a login page, or takes the login to another host."""


class _UnreadAnswer(requests.Response):
    """What the library takes for a finished answer; the "result" that it finds in it is the real answer, unread."""

    def __init__(self, answer: requests.Response) -> None:
        super().__init__()
        self.status_code = 200  # the library would read the body of any other into its error message
        self._answer = answer

    def json(self, **_: Any) -> Any:
        return {"data": {"result": self._answer}}


class _Bearer(AuthBase):
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        r.headers["Authorization"] = f"Bearer {self._token}"
        return r


def _authorization(login: BearerLogin | BasicLogin | None) -> AuthBase | None:
    match login:
        case BearerLogin(token):
            if not (token.isascii() and token.isprintable()):
                raise requests.exceptions.InvalidHeader("the token has signs that no header can carry")
            return _Bearer(token)
        case BasicLogin(username, password):
            # text would be sent as Latin-1, which lacks most of the world's letters
            return HTTPBasicAuth(username.encode(), password.encode())
    return None


def _own_authorities() -> str | bool:
    """The machine's own authorities, to which administrators add theirs; those that come with the library where it has none."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or True
