"""Why a connection failed, as people name it. Code that catches a library's error asks here."""

import socket
import ssl
from collections.abc import Iterator, Mapping

REFUSED, NO_SUCH_HOST = "connection refused", "no such host"

_ANOTHER_NAME = (62, 64)  # OpenSSL's codes of a refused certificate: a host's name, an address
_EXPIRED, _NOT_YET_VALID = 10, 9
_UNKNOWN_SIGNER = (2, 18, 19, 20, 21)


def cause_of(error: BaseException) -> str:
    """The cause behind an error of socket, ssl, urllib3, requests, kazoo or of ours."""
    chain = tuple(_chain(error))
    match chain[-1]:
        case ssl.SSLCertVerificationError() as inner:
            return _refused_certificate(inner)
        case ssl.SSLError(reason=str(reason)):
            return reason.replace("_", " ").lower()
        case ConnectionRefusedError():
            return REFUSED
        case socket.gaierror(errno=socket.EAI_AGAIN):
            return "the name of the host cannot be looked up"
        case socket.gaierror():
            return NO_SUCH_HOST
        case ConnectionResetError() | BrokenPipeError():
            return "the connection was closed"
        case TimeoutError() if len(chain) > 1:
            from urllib3.exceptions import ConnectTimeoutError  # loaded: it has raised this

            connects = any(isinstance(one, ConnectTimeoutError) for one in chain)
            return f"no {'connection' if connects else 'answer'} in time"
        case OSError(strerror=str(what), filename=file):
            return what if file is None else f"{what}: {file}"
        case inner:
            return str(inner) or type(inner).__name__


def file_problem(error: OSError | UnicodeDecodeError) -> str:
    """Why a file cannot be read, without error number and path, which the message has already."""
    return (
        error.strerror or "an error of the operating system"
        if isinstance(error, OSError)
        else "it is not UTF-8"
    )


def innermost(error: BaseException) -> BaseException:
    """The error behind an HTTP library's: the outer ones repeat it, with the whole request."""
    return tuple(_chain(error))[-1]


def tried_words(causes: Mapping[str, str], within_seconds: float) -> str:
    """What follows "did not answer": each cause once, and the time where someone waited."""
    servers: dict[str, list[str]] = {}
    for server, cause in causes.items():
        servers.setdefault(cause, []).append(server)
    tried = "; ".join(f"{', '.join(names)}: {cause}" for cause, names in servers.items())
    waited = not servers.keys() <= {REFUSED, NO_SUCH_HOST}
    return f"{f' within {within_seconds:g} s' if waited else ''} ({tried})"


def _chain(error: BaseException) -> Iterator[BaseException]:
    yield error
    parts = (getattr(error, "reason", None), *error.args, error.__cause__)
    for inner in parts:
        if isinstance(inner, BaseException):
            yield from _chain(inner)
            return


def _refused_certificate(error: ssl.SSLCertVerificationError) -> str:
    """Why the certificate that a server showed was refused, and what to do about it."""
    match error.verify_code:
        case code if code in _ANOTHER_NAME:
            name = error.verify_message.rpartition(" for ")[2].strip("'.")
            return (
                f"its certificate is valid, but not for {name}. Use a name that the certificate "
                f"has, or have {name} added to its subject alternative names"
            )
        case code if code in _UNKNOWN_SIGNER:
            return (
                "its certificate is signed by none of trustedCertificates (where these are unset: "
                "by no authority of this machine)"
            )
        case code if code in (_EXPIRED, _NOT_YET_VALID):
            when = "has expired" if code == _EXPIRED else "is not valid yet"
            return f"its certificate {when}, or the clock of this machine is wrong"
    return f"its certificate is refused: {error.verify_message}"
