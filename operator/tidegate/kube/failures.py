"""Turns whatever goes wrong between us and the API server into tidegate.errors, with a sentence that a person can act on.

The one question that decides: can the request have been carried out? A read never changes anything. A write that never left, or that
the server answered with a refusal, did not happen; for every other write nobody knows.
"""

from __future__ import annotations

import json

from kubernetes.client import ApiException
from urllib3.exceptions import ConnectTimeoutError, HTTPError, MaxRetryError, NewConnectionError

from controller_logic.reasons import Reason
from tidegate.errors import Conflict, Incomplete, InvalidResource, NotFound, OutcomeUnknown, TidegateError, Unauthorized, Unreachable

_NEVER_SENT = (NewConnectionError, ConnectTimeoutError)
# The server's own overload protection, which refuses before it looks; a 503 may come from a proxy that lost the server half-way.
_REFUSED_UNDONE = 429


def failure_of(error: ApiException | HTTPError, *, what: str, reason: Reason, is_write: bool) -> TidegateError:
    """The error to raise for a failed request.

    `what` completes "could not ..."; `reason` is given to NotFound and Incomplete, whose meaning depends on what was asked.
    """
    if isinstance(error, HTTPError):
        return _broken_connection(error, what=what, is_write=is_write)
    return _refusal(error, what=what, reason=reason, is_write=is_write)


def retry_after_seconds(error: ApiException) -> float:
    """How long the server asks to wait; 0 when it does not say."""
    said = (error.headers or {}).get("Retry-After", "")
    return float(said) if said.isdecimal() else 0.0


def server_message(error: ApiException) -> str:
    """What the server said, without headers and request ids; its HTTP reason when the body is not a Kubernetes Status."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason or "no reason given").replace("\n", ": ")


def _broken_connection(error: HTTPError, *, what: str, is_write: bool) -> TidegateError:
    cause = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
    if is_write and not isinstance(cause, _NEVER_SENT):
        return OutcomeUnknown(
            f"The connection to Kubernetes broke while Tidegate tried to {what}: {_shortly(cause)}. It is read back first."
        )
    return _unreachable(f"Kubernetes did not answer, so Tidegate could not {what}: {_shortly(cause)}. It tries again by itself.")


def _unreachable(message: str) -> Unreachable:
    return Unreachable(Reason.KUBERNETES_UNREACHABLE, message)


def _shortly(cause: Exception) -> str:
    # urllib3 puts the pool's text form in front: "<...>(host='10.0.0.1', port=443): Read timed out"
    return f"{type(cause).__name__}: {str(cause).rsplit('): ', 1)[-1]}"


def _refusal(error: ApiException, *, what: str, reason: Reason, is_write: bool) -> TidegateError:
    status, said = error.status, server_message(error)
    could_not = f"Tidegate could not {what}"
    if status in (401, 403):
        return Unauthorized(f"{could_not}: Kubernetes refused it ({status}): {said}. Give the operator's ServiceAccount this right.")
    if status == 404:
        return NotFound(reason, f"{could_not}: it does not exist ({said}).")
    if status == 409:
        return Conflict(f"{could_not}: somebody else changed it at the same moment ({said}). It is read again and tried again.")
    if status == 410:
        return Incomplete(reason, f"{could_not} in one piece: the list expired while it was read ({said}). It is read again.")
    if status in (400, 413, 422):
        return InvalidResource(f"{could_not}: Kubernetes refuses what was sent ({status}): {said}")
    if is_write and status != _REFUSED_UNDONE and not _is_certificate_failure(said):
        return OutcomeUnknown(f"Kubernetes failed while Tidegate tried to {what} ({status}): {said}. It is read back first.")
    return _unreachable(f"{could_not}: Kubernetes is busy or at fault itself ({status}): {said}. Tidegate tries again.")


def _is_certificate_failure(said: str) -> bool:
    # The client reports a failed TLS handshake, which comes before any request, as a refusal with status 0.
    return "CERTIFICATE" in said
