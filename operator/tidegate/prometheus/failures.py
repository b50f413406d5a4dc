"""Turns whatever goes wrong between us and Prometheus into tidegate.errors, with a sentence that a person can act on.

Nothing here decides what a reading is worth without the answer; every sentence says that nothing is done on load meanwhile, because
`controller_logic` holds on what it cannot see.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

import requests
from requests import exceptions
from urllib3.exceptions import HTTPError, ReadTimeoutError

from controller_logic.reasons import Reason
from tidegate.errors import Incomplete, InvalidResource, NotFound, TidegateError, Unauthorized, Unreachable
from tidegate.prometheus.answer_words import SHOWN_CHARACTERS, said_in, shortly

MEANWHILE = "Nothing is throttled further or given back on load meanwhile."
_BAD_ADDRESS = (exceptions.InvalidURL, exceptions.MissingSchema, exceptions.InvalidSchema)
_TOO_SLOW = (exceptions.Timeout, ReadTimeoutError)


def shown_address(url: str) -> str:
    """The address without a login that may stand in it, for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the address given"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def broken(error: Exception, address: str) -> TidegateError:
    """No answer, or only the beginning of one, because of this error of the HTTP library or of the operating system."""
    match error:
        case exceptions.InvalidHeader():
            return Unauthorized(
                "The login for Prometheus holds a line break or another sign that no request can carry. Correct the Secret."
            )
        case _ if isinstance(error, _BAD_ADDRESS):
            return InvalidResource(
                f"Prometheus cannot be asked: {address} is no address. Write it as http://host:port in metrics.prometheus.url."
            )
        case exceptions.SSLError():
            return unreachable(address, f"the encrypted connection failed: {shortly(error)}", "Check metrics.prometheus.caSecretRef.")
        case _ if isinstance(error, _TOO_SLOW):
            return too_slow(address)
        case exceptions.RequestException() | HTTPError():
            return unreachable(address, shortly(error), "Check metrics.prometheus.url and the network policy.")
    return unreachable(address, f"its certificate authorities cannot be read: {error}", "Check metrics.prometheus.caSecretRef.")


def too_slow(address: str) -> TidegateError:
    """It was given all the time there is."""
    return unreachable(address, "it took too long", "Look at its load, and at how many series the queries match.")


def unreachable(address: str, why: str, hint: str) -> TidegateError:
    """It did not answer."""
    return Unreachable(Reason.PROMETHEUS_UNREACHABLE, f"Prometheus at {address} did not answer: {why}. {MEANWHILE} {hint}")


def refusal(answer: requests.Response, beginning: bytes, address: str) -> TidegateError:
    """An answer with another status than 200, of whose body the beginning was read."""
    status, said = answer.status_code, said_in(beginning)
    if answer.headers.get("Location") and 300 <= status < 400:
        elsewhere = shown_address(answer.headers["Location"])
        why = f"Prometheus at {address} sent us on to {elsewhere}, where a login may be wanted; we do not follow. {MEANWHILE}"
        return Unauthorized(f"{why} Give the address of the query API itself, or a login in metrics.prometheus.credentialsSecretRef.")
    if status in (401, 403):
        why = f"Prometheus at {address} refused us ({status}): {said}. {MEANWHILE}"
        return Unauthorized(f"{why} Check the login in metrics.prometheus.credentialsSecretRef.")
    if status == 404:
        why = f"There is no query API at {address} (404). {MEANWHILE}"
        return NotFound(Reason.PROMETHEUS_UNREACHABLE, f"{why} Check the path in metrics.prometheus.url; it ends before /api/v1.")
    if status in (400, 422):
        return InvalidResource(f"Prometheus at {address} cannot carry out a query: {said}. {MEANWHILE}", Reason.METRICS_QUERY_REFUSED)
    return unreachable(address, f"it is busy or at fault itself ({status}): {said}", "Look at its log.")


def too_large(limit_bytes: int, address: str) -> TidegateError:
    """The answer was longer than anybody wants to read."""
    why = f"The answer of Prometheus at {address} is larger than {limit_bytes / 1e6:g} MB and was not read to its end. {MEANWHILE}"
    return Incomplete(Reason.METRICS_INCOMPLETE, f"{why} Narrow the queries, for instance to one Kafka cluster.")


def not_samples(error: Exception, answer: requests.Response, address: str) -> TidegateError:
    """A whole answer, of another kind than samples."""
    kind = answer.headers.get("Content-Type") or "of no stated kind"
    why = f"What answered at {address} is not usable as samples ({kind}): {error}. {MEANWHILE}"
    return Incomplete(Reason.METRICS_INCOMPLETE, f"{why} Check metrics.prometheus.url; a login page answers like this, too.")


def partial(warnings: Sequence[str], address: str) -> TidegateError:
    """Prometheus itself says that something may be missing."""
    why = f"Prometheus at {address} warns that its answer may lack something: {'; '.join(warnings)[:SHOWN_CHARACTERS]}. {MEANWHILE}"
    return Incomplete(Reason.METRICS_INCOMPLETE, f"{why} Look at the stores behind it.")
