"""Causes are named by what is wrong, no matter which library reports it, and messages are made of
what happened, what the operator does next, and what a person can do.
"""

from __future__ import annotations

import ast
import errno
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests
import urllib3
from kazoo.exceptions import ConnectionLoss

import tidegate
from tidegate import errors
from tidegate.causes import cause_of, tried_words
from tidegate.errors import Conflict, UserActionRequired, joined
from tidegate_logic.reasons import Reason

REFUSALS = {
    62: "Hostname mismatch, certificate is not valid for 'zk-1.kafka'.",
    64: "IP address mismatch, certificate is not valid for '10.0.0.7'.",
    20: "unable to get local issuer certificate",
    18: "self-signed certificate",
    10: "certificate has expired",
    9: "certificate is not yet valid",
    23: "certificate revoked",
}


def refusal(code: int) -> ssl.SSLCertVerificationError:
    """As Python's ssl raises it."""
    error = ssl.SSLCertVerificationError(1, f"[SSL] certificate verify failed: {REFUSALS[code]}")
    error.verify_code, error.verify_message = code, REFUSALS[code]
    return error


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_certificate_reads_like_this(code: int, golden: Callable[[str], None]) -> None:
    golden(cause_of(refusal(code)))


def no_listener() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def by_socket(address: str) -> None:
    host, _, port = address.rpartition(":")
    with closing(socket.create_connection((host, int(port)), timeout=0.1)) as connection:
        connection.recv(1)


def by_urllib3(address: str) -> None:
    urllib3.PoolManager(retries=False).request("GET", f"http://{address}", timeout=0.1)


def by_requests(address: str) -> None:
    requests.get(f"http://{address}", timeout=0.1)


LIBRARIES = pytest.mark.parametrize("connect", [by_socket, by_urllib3, by_requests])


def failure(connect: Callable[[str], None], address: str) -> Exception:
    with pytest.raises(Exception) as caught:  # what a library raises is the question
        connect(address)
    return caught.value


@LIBRARIES
def test_a_refused_connection_and_an_unknown_host_have_one_name(
    connect: Callable[[str], None],
) -> None:
    assert cause_of(failure(connect, no_listener())) == "connection refused"
    assert cause_of(failure(connect, "nowhere.invalid:1")) in (
        "no such host",
        "the name of the host cannot be looked up",
    )


@LIBRARIES
def test_silence_is_named_without_a_librarys_words(
    connect: Callable[[str], None], silent: str
) -> None:
    assert cause_of(failure(connect, silent)) in ("timed out", "no answer in time")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "was closed"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "No route to host"),
        (OSError(errno.ENOENT, "No such file", "ca.crt"), "No such file: ca.crt"),
        (ConnectionError("it hung up"), "it hung up"),
        (ssl.SSLError(1, "[SSL: X] (_ssl.c:1)"), "[SSL: X] (_ssl.c:1)"),
        (ConnectionLoss(), "ConnectionLoss"),
    ],
)
def test_other_causes_have_no_number_before_them(error: Exception, cause: str) -> None:
    assert cause_of(error).endswith(cause)
    assert "Errno" not in cause_of(error)


def test_a_server_that_speaks_no_tls_is_named_by_what_it_sent() -> None:
    client, server = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(client, server, server_hostname="a")
    client.write(b"HTTP/1.1 400 Bad Request")
    with pytest.raises(ssl.SSLError) as caught:
        tls.do_handshake()
    assert cause_of(caught.value) == "wrong version number"


def test_each_cause_is_said_once_and_a_time_only_where_somebody_waited() -> None:
    refused = {"a:1": "connection refused", "b:1": "connection refused", "c:1": "no such host"}
    assert tried_words(refused, 10.0) == " (a:1, b:1: connection refused; c:1: no such host)"
    waited = {**refused, "b:1": "timed out"}
    assert tried_words(waited, 10.0).startswith(" within 10 s (a:1: connection refused; b:1: timed")


def test_a_message_is_what_the_operator_says_and_a_command_leaves_the_consequence_out() -> None:
    error = Conflict("It has changed.", consequence="the next pass tries again.", advice="Wait.")
    assert str(error) == error.message == "It has changed; the next pass tries again. Wait."
    assert error.for_command == "It has changed. Wait."
    other = UserActionRequired(Reason.INVALID_SPEC, "It cannot be used", **error.more)
    assert other.message == "It cannot be used; the next pass tries again. Wait."
    assert joined("", "a b", "", "Cd.") == "a b. Cd."


OPERATORS = ("quota stays", "tries again", "asks again", "read back", "read again", "next pass")
PARTS = ("kafka", "kube", "observe", "prometheus")


def test_only_consequences_say_what_the_operator_does_next() -> None:
    """So that no command says it: the other parts of these errors are what it prints."""
    root = Path(tidegate.__file__).parent
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    for path in sorted(one for part in PARTS for one in (root / part).rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in kinds:
                advice = [one.value for one in call.keywords if one.arg == "advice"]
                for part in (*call.args, *advice):
                    text = ast.unparse(part).lower()
                    assert not any(words in text for words in OPERATORS), (path, text)
