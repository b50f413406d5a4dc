"""Addresses and logins of ZooKeeper and the brokers, as plain values.

The reader of Secrets and files fills them in. Passwords are left out of `repr`, so that a settings
object in a log line or a traceback shows none.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

QUOTAS_STAY = "Every quota stays as it is."


class SaslMechanism(StrEnum):
    """The login mechanisms: DIGEST-MD5 is ZooKeeper's, the others are the brokers'."""

    DIGEST_MD5 = "DIGEST-MD5"
    OAUTHBEARER = "OAUTHBEARER"
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """A user name with its password."""

    mechanism: SaslMechanism
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. `expires_at_seconds` is since 1970."""

    value: str = field(repr=False)
    expires_at_seconds: float


class Tokens(Protocol):
    """Where a login's tokens come from; several threads may use it."""

    def current(self) -> Token:
        """A token that is valid now. Fetching one takes a few seconds at most.

        Raises Unreachable if none is available now, Unauthorized if the client is refused.
        """

    def forget(self) -> None:
        """Drop the current token, which was refused, so that the next login fetches another."""


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """A login by tokens. `identity` says in messages whose: `client tidegate`."""

    identity: str
    tokens: Tokens = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    mechanism: SaslMechanism = SaslMechanism.OAUTHBEARER


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files for an encrypted connection.

    No CA = the machine's own; no certificate = the server is shown none.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """The context of a connection. With a CA it trusts no other, whatever the machine does.

        Raises OSError if a file cannot be used.
        """
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = self.check_hostname
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
        return context


@dataclass(frozen=True, slots=True)
class ZooKeeperConnection:
    """ZooKeeper as `zookeeper.connect` spells it, chroot included: `zk-1:2181,zk-2:2181/kafka`.

    Log in as the brokers' own identity where `zookeeper.set.acl` is on; any other cannot read
    `/config/users`. `start_timeout_seconds` bounds the first connection, `request_timeout_seconds`
    every call after it. Errors say with `meanwhile` what happens until it answers.
    """

    connect: str
    sasl: SaslLogin | None = None
    tls: TlsFiles | None = None
    session_timeout_seconds: float = 12.0
    start_timeout_seconds: float = 10.0
    request_timeout_seconds: float = 10.0
    meanwhile: str = QUOTAS_STAY


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """The brokers' client listener, as `host:port` each.

    `request_timeout_seconds` bounds a whole answer, all tries together.
    """

    bootstrap_servers: tuple[str, ...]
    sasl: SaslLogin | TokenLogin | None = None
    tls: TlsFiles | None = None
    request_timeout_seconds: float = 10.0
