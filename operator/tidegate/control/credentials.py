"""Turns the keys of a Secret into connection settings for ZooKeeper and for the brokers.

Keys, as in Kubernetes' own Secret types: `username` and `password` (and, for brokers, `sasl.mechanism`), `ca.crt`, `tls.crt` and
`tls.key`. Kafka's libraries want certificates as files, so these are written to a private folder that lives as long as
the connection. No value is ever shown.
"""

from collections.abc import Mapping
from pathlib import Path

from controller_logic.reasons import Reason
from tidegate.errors import NeedsMending
from tidegate.kafka.settings import KafkaConnection, SaslLogin, SaslMechanism, TlsFiles, ZooKeeperConnection
from tidegate.resources.policy import KafkaCluster as KafkaSpec

SecretData = Mapping[str, bytes]
_BROKER_MECHANISMS = (SaslMechanism.SCRAM_SHA_512, SaslMechanism.SCRAM_SHA_256, SaslMechanism.PLAIN)
_TLS_KEYS = ("ca.crt", "tls.crt", "tls.key")


def zookeeper_connection(spec: KafkaSpec, secret: SecretData, folder: Path) -> ZooKeeperConnection:
    """How to reach the policy's ZooKeeper. Raises NeedsMending with SECRET_UNREADABLE when the Secret lacks a key."""
    if spec.zookeeper is None:
        raise NeedsMending(Reason.INVALID_SPEC, "spec.kafka.zookeeper is required with quotaStore ZooKeeper; every quota stays as it is")
    login = _login(secret, SaslMechanism.DIGEST_MD5, what="ZooKeeper")
    return ZooKeeperConnection(spec.zookeeper.connect, sasl=login, tls=_tls_files(secret, folder / "zookeeper"))


def brokers_connection(spec: KafkaSpec, secret: SecretData, folder: Path) -> KafkaConnection:
    """How to reach the policy's brokers; SCRAM-SHA-512 where the Secret names no `sasl.mechanism`."""
    login = _login(secret, _mechanism(secret), what="the brokers")
    servers = tuple(spec.bootstrap_servers.split(","))
    return KafkaConnection(servers, sasl=login, tls=_tls_files(secret, folder / "brokers"))


def _mechanism(secret: SecretData) -> SaslMechanism:
    named = secret_text(secret, "sasl.mechanism") or SaslMechanism.SCRAM_SHA_512
    found = next((mechanism for mechanism in _BROKER_MECHANISMS if mechanism == named), None)
    if found is None:
        known = ", ".join(_BROKER_MECHANISMS)
        raise lacking(f"key sasl.mechanism of the Kafka client Secret must be one of {known}")
    return found


def _login(secret: SecretData, mechanism: SaslMechanism, *, what: str) -> SaslLogin | None:
    username, password = secret_text(secret, "username"), secret_text(secret, "password")
    if username is None and password is None:
        return None
    if not username or not password:
        raise lacking(f"the Secret for {what} must have both keys username and password, or neither")
    return SaslLogin(mechanism, username, password)


def _tls_files(secret: SecretData, folder: Path) -> TlsFiles | None:
    given = {key: secret[key] for key in _TLS_KEYS if key in secret}
    if not given:
        return None
    if ("tls.crt" in given) != ("tls.key" in given):
        raise lacking("a Secret with a client certificate must have both keys tls.crt and tls.key")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {key: write_private(folder / key, content) for key, content in given.items()}
    return TlsFiles(ca_file=files.get("ca.crt"), certificate_file=files.get("tls.crt"), key_file=files.get("tls.key"))


def write_private(path: Path, content: bytes) -> str:
    """Write a file that only this user may read; returns its path."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return str(path)


def secret_text(secret: SecretData, key: str) -> str | None:
    """The value as text without line ends around it; None where the Secret has no such key. Raises NeedsMending for what is no text."""
    value = secret.get(key)
    if value is None:
        return None
    try:
        return value.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        raise lacking(f"key {key} of the Secret must be UTF-8 text") from None


def lacking(what_must_hold: str, *, meanwhile: str = "every quota stays as it is until then") -> NeedsMending:
    """The error for a Secret that does not hold what it must; `meanwhile` says what happens until it does."""
    return NeedsMending(Reason.SECRET_UNREADABLE, f"{what_must_hold[0].upper()}{what_must_hold[1:]}; {meanwhile}")
