"""Who looks, and what they may see: TokenReview and SubjectAccessReview of the API server.

A viewer sees the objects that their own rights let them list, kind by kind and namespace by
namespace; nothing of others is sent. Nothing is stored by these calls: a review is answered and
forgotten. Answers are kept for seconds, for one person's pages that open at once; how long a page
goes by them is for `viewers.py`. Every call may wait for the API server, so none belongs on an
event loop.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from kubernetes import client

from tidegate.kube.api import ResourceKind
from tidegate.kube.client import Transport
from tidegate_logic.reasons import Reason

KEPT_SECONDS: Final = 10.0  # what a page goes by may be older by this
_REFUSED_SECONDS: Final = 60.0
_MOST_VIEWERS: Final = 1_000
_MOST_REFUSED: Final = 1_000
_MOST_RIGHTS: Final = 100_000
_LONGEST_TOKEN: Final = 16_384
_UNKNOWN_AT_ONCE: Final = 8  # reviews of tokens that nobody has logged in with yet
_UNKNOWN_PER_SECOND: Final = 5.0
_UNKNOWN_BURST: Final = 50
# A page waits for these. What was known before is used while the server does not answer.
_TIMEOUTS: Final = (2.0, 4.0)
_ATTEMPTS: Final = 2
_REASON: Final = Reason.KUBERNETES_UNREACHABLE


class Refused(Exception):
    """There is no token, or the API server does not know whose it is. `str()` is for people."""


class TooManyUnknown(Refused):
    """Too many tokens that are not known yet are being tried; this one was not reviewed."""

    def __init__(self) -> None:
        super().__init__("Too many logins are being tried right now. Try again in a few seconds.")


class Allowance:
    """Allows `burst` calls, and `per_second` more each second. For several threads."""

    def __init__(
        self, per_second: float, burst: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second, self._burst, self._monotonic = per_second, burst, monotonic
        self._left, self._at = float(burst), monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether one more call is allowed now; if so, it is used up."""
        with self._lock:
            now = self._monotonic()
            self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
            self._at = now
            is_allowed = self._left >= 1.0
            self._left -= is_allowed
            return is_allowed


@dataclass(frozen=True, slots=True)
class Viewer:
    """Someone whom the API server knows, as it names them."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)

    @property
    def digest(self) -> str:
        """The same for two tokens only where everything that rights depend on is the same.

        One account's tokens may differ in groups and in `extra` (scopes): fewer rights are the
        point of such a token.
        """
        extra = {name: sorted(values) for name, values in self.extra.items()}
        parts = [self.username, self.uid, sorted(self.groups), extra]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class _Kept:
    """Answers with their times; beyond `most`, the oldest go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: dict[object, tuple[float, Any]] = {}
        self._lock = threading.Lock()

    def get(self, key: object) -> tuple[float, Any] | None:
        with self._lock:
            return self._answers.get(key)

    def put(self, key: object, at_seconds: float, answer: object) -> None:
        with self._lock:
            self._answers.pop(key, None)
            self._answers[key] = (at_seconds, answer)
            while len(self._answers) > self._most:
                del self._answers[next(iter(self._answers))]

    def drop(self, key: object) -> None:
        with self._lock:
            self._answers.pop(key, None)


class Access:
    """Asks the API server. Calls may come from several threads; all raise from tidegate.errors.

    Tokens that nobody has logged in with yet are reviewed a few at a time and a few a second, and
    what is kept of refused ones never displaces a viewer: anyone can send such tokens.
    """

    def __init__(
        self,
        api_client: client.ApiClient,
        *,
        audiences: Sequence[str] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects = client.CustomObjectsApi(api_client)
        self._transport = Transport(timeouts=_TIMEOUTS, read_attempts=_ATTEMPTS)
        self._audiences = list(audiences)
        self._monotonic = monotonic
        self._viewers, self._refused = _Kept(_MOST_VIEWERS), _Kept(_MOST_REFUSED)
        self._rights = _Kept(_MOST_RIGHTS)
        self._unknown = Allowance(_UNKNOWN_PER_SECOND, _UNKNOWN_BURST, monotonic)
        self._unknown_at_once = threading.BoundedSemaphore(_UNKNOWN_AT_ONCE)

    def viewer(self, token: str | None) -> Viewer:
        """Whose token it is. Raises Refused."""
        if not token or len(token) > _LONGEST_TOKEN or not token.isascii():
            raise Refused("Log in with a token of this Kubernetes cluster.")
        # the token itself is kept nowhere but in the session
        key = hashlib.sha256(token.encode()).hexdigest()
        known = self._viewers.get(key)
        if known is not None and self._is_fresh(known):
            return cast(Viewer, known[1])
        refused = self._refused.get(key)
        if refused is not None and self._is_fresh(refused, _REFUSED_SECONDS):
            raise _not_valid()
        found = self._review(token) if known is not None else self._review_unknown(token)
        if found is None:
            self._viewers.drop(key)
            self._refused.put(key, self._monotonic(), None)
            raise _not_valid()
        self._viewers.put(key, self._monotonic(), found)
        return found

    def may_list(self, viewer: Viewer, kind: ResourceKind, namespace: str) -> bool:
        """Whether the viewer may list objects of this kind in the namespace ("" = in every one)."""
        key = (viewer.digest, kind.plural, namespace)
        known = self._rights.get(key)
        if known is None or not self._is_fresh(known):
            known = (self._monotonic(), self._may_list(viewer, kind, namespace))
            self._rights.put(key, *known)
        return bool(known[1])

    def _is_fresh(self, known: tuple[float, Any], seconds: float = KEPT_SECONDS) -> bool:
        return self._monotonic() - known[0] <= seconds

    def _review_unknown(self, token: str) -> Viewer | None:
        if not self._unknown_at_once.acquire(blocking=False):
            raise TooManyUnknown
        try:
            if not self._unknown.take():
                raise TooManyUnknown
            return self._review(token)
        finally:
            self._unknown_at_once.release()

    def _review(self, token: str) -> Viewer | None:
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = self._audiences
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        answer = self._transport.read(
            self._objects.create_cluster_custom_object,
            "authentication.k8s.io",
            "v1",
            "tokenreviews",
            what="ask whose token it is",
            reason=_REASON,
            body=body,
        )
        status = answer.get("status") or {}
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        return Viewer(
            str(user.get("username", "")),
            str(user.get("uid", "")),
            tuple(user.get("groups") or ()),
            user.get("extra") or {},
        )

    def _may_list(self, viewer: Viewer, kind: ResourceKind, namespace: str) -> bool:
        attributes = {
            "group": kind.group,
            "version": kind.version,
            "resource": kind.plural,
            "verb": "list",
            "namespace": namespace,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": viewer.username,
                "uid": viewer.uid,
                "groups": list(viewer.groups),
                "extra": {name: list(values) for name, values in viewer.extra.items()},
                "resourceAttributes": attributes,
            },
        }
        answer = self._transport.read(
            self._objects.create_cluster_custom_object,
            "authorization.k8s.io",
            "v1",
            "subjectaccessreviews",
            what="ask what the viewer may see",
            reason=_REASON,
            body=body,
        )
        status = answer.get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied")


def _not_valid() -> Refused:
    return Refused("This token is not valid any more, or is not of this Kubernetes cluster.")
