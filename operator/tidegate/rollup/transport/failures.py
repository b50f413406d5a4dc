"""What goes wrong between us and a server's history, as tidegate.errors with a sentence that a person can act on.

The operator's readings have sentences of their own (`tidegate.prometheus.client`): there it is about what is throttled meanwhile.
"""

import requests
from requests import exceptions
from urllib3.exceptions import HTTPError, ReadTimeoutError

from controller_logic.reasons import Reason
from tidegate.errors import Incomplete, InvalidResource, NotFound, TidegateError, Unauthorized, Unreachable
from tidegate.prometheus.client import SHOWN_CHARACTERS, said_in, shortly

MEANWHILE = "No usage is written for what was asked; a later run reads it again."
_BAD_ADDRESS = (exceptions.InvalidURL, exceptions.MissingSchema, exceptions.InvalidSchema)
_TOO_SLOW = (exceptions.Timeout, ReadTimeoutError)


class Damaged(Incomplete):
    """An answer that broke off or arrived with errors in it; another attempt may bring it whole."""


def broken(error: Exception, address: str) -> TidegateError:
    """No answer, or only the beginning of one, because of this error of the HTTP library or of the operating system."""
    match error:
        case exceptions.InvalidHeader():
            return Unauthorized("A header for Prometheus holds a line break or another sign that no request can carry. Correct the login.")
        case _ if isinstance(error, _BAD_ADDRESS):
            return InvalidResource(f"Prometheus cannot be asked: {address} is no address. Write it as http://host:port.")
        case exceptions.SSLError():
            return unreachable(address, f"the encrypted connection failed: {shortly(error)}", "Check the authorities and the certificate.")
        case _ if isinstance(error, _TOO_SLOW):
            return too_slow(address)
        case exceptions.RequestException() | HTTPError():
            return unreachable(address, shortly(error), "Check the address and the network policy.")
    hint = "Check the paths of token, authorities and certificate, and that there is a folder for temporary files."
    return unreachable(address, f"a file for the connection cannot be used: {error}", hint)


def unreachable(address: str, why: str, hint: str) -> TidegateError:
    """It did not answer."""
    return Unreachable(Reason.PROMETHEUS_UNREACHABLE, f"Prometheus at {address} did not give its history: {why}. {MEANWHILE} {hint}")


def too_slow(address: str) -> TidegateError:
    """It was given all the time there is."""
    return unreachable(address, "it took too long", "Look at its load, or ask for shorter pieces of time.")


def no_slot(address: str, parallel_requests: int) -> TidegateError:
    """Other requests of ours kept all the places for parallel ones."""
    why = f"{parallel_requests} other requests of this machine were under way all the time"
    return unreachable(address, why, "Give more time, or allow more requests at once.")


def refusal(answer: requests.Response, beginning: bytes, address: str) -> TidegateError:
    """An answer with another status than 200, of whose body the beginning was read."""
    status, said = answer.status_code, said_in(beginning)
    if answer.headers.get("Location") and 300 <= status < 400:
        why = f"Prometheus at {address} sent us elsewhere, where a login may be wanted; we do not follow. {MEANWHILE}"
        return Unauthorized(f"{why} Give the address of the API itself, or a login.")
    if status in (401, 403):
        return Unauthorized(f"Prometheus at {address} refused us ({status}): {said}. {MEANWHILE} Check the login.")
    if status in (404, 405):
        why = f"There is no such API at {address} ({status}): {said}. {MEANWHILE}"
        return NotFound(Reason.PROMETHEUS_UNREACHABLE, f"{why} Check the path in the address; it ends before /api/v1.")
    if status in (400, 413, 415, 422, 501):
        why = f"Prometheus at {address} cannot give this history ({status}): {said}. {MEANWHILE}"
        return InvalidResource(f"{why} Ask for a shorter piece of time or for fewer series.", Reason.METRICS_QUERY_REFUSED)
    return unreachable(address, f"it is busy or at fault itself ({status}): {said}", "Look at its log.")


def too_large(limit_bytes: int, address: str) -> TidegateError:
    """The answer was longer than anybody wants to read."""
    why = f"The answer of Prometheus at {address} is larger than {limit_bytes / 1e6:g} MB and was not read to its end. {MEANWHILE}"
    return Incomplete(Reason.METRICS_INCOMPLETE, f"{why} Ask for a shorter piece of time or for fewer series.")


def other_content(kind: str, beginning: bytes, *, wanted: str, address: str) -> TidegateError:
    """A whole answer of another kind, as of a gateway that knows no such API, or of a login page."""
    why = f"What answered at {address} is {kind or 'of no stated kind'} instead of {wanted}: {said_in(beginning)}. {MEANWHILE}"
    return Incomplete(Reason.METRICS_INCOMPLETE, f"{why} Check the address; a login page answers like this, too.")


def damaged(why: object, address: str) -> TidegateError:
    """The right kind of answer, but not whole."""
    return Damaged(Reason.METRICS_INCOMPLETE, f"The answer of Prometheus at {address} cannot be read: {why}. {MEANWHILE} Look at its log.")


def no_floats(why: object, address: str) -> TidegateError:
    """Samples that are no numbers."""
    told = f"The answer of Prometheus at {address} has chunks {why}, where counters or gauges were wanted. {MEANWHILE}"
    return InvalidResource(f"{told} Narrow the selection to metrics that are plain numbers.", Reason.METRICS_UNREADABLE)


def partial(warnings: str, address: str) -> TidegateError:
    """Prometheus itself says that something may be missing."""
    why = f"Prometheus at {address} warns that its answer may lack something: {warnings[:SHOWN_CHARACTERS]}. {MEANWHILE}"
    return Incomplete(Reason.METRICS_INCOMPLETE, f"{why} Look at the stores behind it.")
