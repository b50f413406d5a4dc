"""One connection to one broker: requests and answers of kafka-python's protocol classes over a plain socket, each bounded in time.

kafka-python's own client keeps a thread, a metadata cache and retries of its own; a control pass wants one answer or one error. The
versions used are old enough for Kafka 0.11 and still spoken by 4.x, so nothing is negotiated.
"""

import contextlib
import socket
import ssl
import struct
import time
from typing import Any

from tidegate.errors import Unauthorized
from tidegate.kafka.broker_messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    get_sasl_mechanism,
)
from tidegate.kafka.settings import KafkaConnection, SaslLogin, TlsFiles

CLIENT_ID = "tidegate"
_MOST_BYTES = 256 * 1024 * 1024
_SIZE = struct.Struct(">i")
_SPOKEN = {
    MetadataRequest: (MetadataResponse, 4),
    DescribeConfigsRequest: (DescribeConfigsResponse, 1),
    SaslHandshakeRequest: (SaslHandshakeResponse, 1),
    SaslAuthenticateRequest: (SaslAuthenticateResponse, 0),
}


class BrokerConnection:
    """An open, logged-in connection to `host:port`; a context manager.

    Raises OSError when the broker does not answer in time or hangs up, Unauthorized when it refuses the login. After any error it
    is of no further use.
    """

    def __init__(self, host: str, port: int, *, settings: KafkaConnection, timeout_seconds: float) -> None:
        self._deadline = time.monotonic() + timeout_seconds
        self._correlation_id = 0
        self.address = f"{host}:{port}"
        self._socket = socket.create_connection((host, port), timeout=timeout_seconds)
        try:
            if settings.tls is not None:
                self._socket = _tls_context(settings.tls).wrap_socket(self._socket, server_hostname=host)
            if settings.sasl is not None:
                self._log_in(settings.sasl, is_encrypted=settings.tls is not None)
        except BaseException:
            self.close()
            raise

    def ask(self, request: Any, timeout_seconds: float) -> Any:
        """The broker's answer to one request. An error code inside the answer is the caller's business."""
        self._deadline = time.monotonic() + timeout_seconds
        return self._exchange(request)

    def close(self) -> None:
        """Hang up. A second call does nothing."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def __enter__(self) -> "BrokerConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, request: Any) -> Any:
        response_class, version = _SPOKEN[type(request)]
        self._correlation_id += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation_id, client_id=CLIENT_ID)
        self._socket.settimeout(self._left())
        self._socket.sendall(request.encode(version=version, header=True, framed=True))
        (size,) = _SIZE.unpack(self._receive(_SIZE.size))
        if not 0 < size <= _MOST_BYTES:
            raise ConnectionError(f"it sent {size} as the size of its answer; this is no Kafka listener, or one with TLS")
        response = response_class.decode(bytes(self._receive(size)), version=version, header=True)
        if response.header.correlation_id != self._correlation_id:
            raise ConnectionError("its answer belongs to another request")
        return response

    def _receive(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view, done = memoryview(buffer), 0
        while done < size:
            self._socket.settimeout(self._left())
            count = self._socket.recv_into(view[done:])
            if not count:
                raise ConnectionError("it hung up; a listener with TLS or login does so on clients without")
            done += count
        return buffer

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it did not answer in time")
        return left

    def _log_in(self, login: SaslLogin, *, is_encrypted: bool) -> None:
        handshake = self._exchange(SaslHandshakeRequest(mechanism=login.mechanism.value))
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise Unauthorized(f"Broker {self.address} does not offer login by {login.mechanism.value}; it offers {offered}.")
        mechanism = get_sasl_mechanism(login.mechanism.value)(
            sasl_mechanism=login.mechanism.value,
            sasl_plain_username=login.username,
            sasl_plain_password=login.password,
            security_protocol="SASL_SSL" if is_encrypted else "",
        )
        while not mechanism.is_done():
            answer = self._exchange(SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes()))
            if answer.error_code:
                raise Unauthorized(
                    f"Broker {self.address} refused the login as {login.username} by {login.mechanism.value}: {answer.error_message}. "
                    "Correct the user name and password for the brokers."
                )
            mechanism.receive(answer.auth_bytes)


def _tls_context(tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.check_hostname = tls.check_hostname
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
    return context
