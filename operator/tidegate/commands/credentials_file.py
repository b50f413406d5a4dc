"""Credentials from a file, instead of the Secrets that a policy names.

The file is YAML with keys and plain values, or Secrets as `kubectl get secret -o yaml` prints them:
one, several documents, or a list. Instead of a file it may be the folder that a Secret is mounted
as, with a file for each key. The names of the Secrets do not matter, only their keys. Values
are never shown, not even in errors.

It is a module of its own because it imports the resources and their clients, which `tidegate
--help` does without.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import ValidationError

from tidegate.causes import file_problem
from tidegate.errors import UserActionRequired
from tidegate.observe.connections import QUOTAS_STAY, prometheus_server
from tidegate.observe.secrets_and_hosts import SecretData, Secrets
from tidegate.prometheus.settings import PrometheusServer
from tidegate.resources.authentication import (
    EXTENSION,
    TOKEN_FIELDS,
    AccessKey,
    Authentication,
    CertificateAndKey,
    KafkaAuthentication,
    PasswordSecret,
    PrometheusAuthentication,
    SecretValue,
    Tls,
    TokenSecret,
    TrustedCertificate,
    ZooKeeperAuthentication,
    secret_names,
)
from tidegate.resources.policy import KafkaCluster as KafkaSpec
from tidegate.resources.policy import Prometheus, ZooKeeperConnection
from tidegate_logic.reasons import Reason

_NAME = "credentials-file"  # what the file is called where no policy names a Secret
_NOT_READ = "nothing was read"
Login = TypeVar("Login", bound=Authentication)


@dataclass(frozen=True, slots=True)
class CredentialsFile:
    """The keys of a file, with their values.

    Where the policy declares `tls` or `authentication`, the file's keys replace those of the
    Secrets that it names, and a key `username` replaces its user. Where it declares neither, a
    key's name decides its use: `username` and `password` or `token`, `ca.crt`, `tls.crt` and
    `tls.key`; for brokers, also the fields of a policy's login by tokens (`TOKEN_FIELDS`).
    """

    path: Path
    keys: SecretData = field(repr=False)

    def for_zookeeper(self, declared: ZooKeeperConnection) -> tuple[ZooKeeperConnection, Secrets]:
        """The declaration with the file's logins. Raises UserActionRequired for half of one."""
        tls, login = self._resolved(declared.tls, declared.authentication, self._zookeeper_login)
        return declared.model_copy(update={"tls": tls, "authentication": login}), self._secrets(
            tls, login
        )

    def for_brokers(self, declared: KafkaSpec) -> tuple[KafkaSpec, Secrets]:
        """The same for the brokers.

        Where the policy names a token that only its operator has, the key `token`, or the access
        key of AWS, replaces that.
        """
        tls, login = self._resolved(declared.tls, declared.authentication, self._kafka_login)
        if login is not None and login.access_token_file is not None:
            given: dict[str, object] = {}
            if login.type == "oauthbearer" and "token" in self.keys:
                given = {"access_token": _token("token")}
            elif "accessKeyId" in self.keys:
                given = {"access_key": self._access_key(), "role_arn": None, "sts_endpoint": None}
            if given:
                login = login.model_copy(update={**given, "access_token_file": None})
        return declared.model_copy(update={"tls": tls, "authentication": login}), self._secrets(
            tls, login
        )

    def for_prometheus(self, declared: Prometheus) -> PrometheusServer:
        """The same for the policy's Prometheus."""
        tls, login = self._resolved(declared.tls, declared.authentication, self._prometheus_login)
        return prometheus_server(
            declared.url, tls, login, self._secrets(tls, login), meanwhile=_NOT_READ
        )

    def for_named_prometheus(self, url: str) -> PrometheusServer:
        """A server that no policy names.

        Raises UserActionRequired for half of a login, and for keys of which none is known.
        """
        given = {"token", "username", "password", "ca.crt", "tls.crt", "tls.key"} & self.keys.keys()
        if (self.keys and not given) or (
            len(given & {"username", "password"}) == 1 and "token" not in given
        ):
            what = "must have the key token, both keys username and password, or ca.crt"
            raise UserActionRequired(
                Reason.SECRET_UNREADABLE, f"Credentials file {self.path} {what}; {_NOT_READ}"
            )
        tls, login = self._resolved(None, None, self._prometheus_login)
        return prometheus_server(url, tls, login, self._secrets(tls, login), meanwhile=_NOT_READ)

    def _resolved(
        self, tls: Tls | None, login: Login | None, implied: Callable[[], Login | None]
    ) -> tuple[Tls | None, Login | None]:
        if tls is None and login is None:
            return self._tls(), implied()
        if login is None or login.username is None or "username" not in self.keys:
            return tls, login
        return tls, cast(Login, login.model_copy(update={"username": self._username()}))

    def _secrets(self, tls: Tls | None, login: Authentication | None) -> Secrets:
        return Secrets(data=dict.fromkeys(secret_names(tls, login), self.keys), file=self.path)

    def _tls(self) -> Tls | None:
        if "ca.crt" in self.keys:
            return Tls(
                trusted_certificates=(TrustedCertificate(secret_name=_NAME, certificate="ca.crt"),)
            )
        needs_it = self._certificate() is not None or bool(_TOKEN_KEYS.keys() & self.keys.keys())
        return Tls() if needs_it else None

    def _kafka_login(self) -> KafkaAuthentication | None:
        kind = next((kind for key, kind in _TOKEN_KEYS.items() if key in self.keys), None)
        if kind is None:
            return self._login(KafkaAuthentication, "scram-sha-512")
        own = Secrets(data={_NAME: self.keys}, file=self.path)
        fields: dict[str, Any] = {
            name: own.text(_NAME, name, meanwhile=QUOTAS_STAY)
            for name in TOKEN_FIELDS
            if name in self.keys
        }
        extensions = {
            key.removeprefix(EXTENSION): own.text(_NAME, key, meanwhile=QUOTAS_STAY)
            for key in self.keys
            if key.startswith(EXTENSION)
        }
        fields["saslExtensions"] = extensions or None
        for name, key in (("clientSecret", "clientSecret"), ("accessToken", "token")):
            if key in self.keys:
                fields[name] = _token(key)
        if "tokenEndpoint.crt" in self.keys:
            trusted = TrustedCertificate(secret_name=_NAME, certificate="tokenEndpoint.crt")
            fields["tlsTrustedCertificates"] = (trusted,)
        if "accessKeyId" in self.keys:
            fields["accessKey"] = self._access_key()
        try:
            return KafkaAuthentication.model_validate(
                {"type": kind, **fields, "certificateAndKey": self._certificate()}
            )
        except ValidationError as error:
            what = "; ".join(
                ".".join(map(str, (*one["loc"], ""))) + f" {one['msg']}" for one in error.errors()
            )
            raise _unreadable(self.path, f"is not a login of type {kind}: {what}") from None

    def _access_key(self) -> AccessKey:
        return AccessKey(
            secret_name=_NAME,
            access_key_id="accessKeyId",
            secret_access_key="secretAccessKey",  # noqa: S106  (the key's name)
            session_token="sessionToken" if "sessionToken" in self.keys else None,
        )

    def _zookeeper_login(self) -> ZooKeeperAuthentication | None:
        return self._login(ZooKeeperAuthentication, "digest")

    def _prometheus_login(self) -> PrometheusAuthentication | None:
        if "token" not in self.keys:
            return self._login(PrometheusAuthentication, "basic")
        return PrometheusAuthentication(
            type="bearer",
            token_secret=TokenSecret(secret_name=_NAME, token="token"),  # noqa: S106  (the key's name)
            certificate_and_key=self._certificate(),
        )

    def _login(self, form: Callable[..., Login], with_password: str) -> Login | None:
        """The login that the keys make: of this type with a password, else with a certificate."""
        certificate = self._certificate()
        if self._has_password():
            return form(
                type=with_password,
                username=self._username(),
                password_secret=_PASSWORD,
                certificate_and_key=certificate,
            )
        return None if certificate is None else form(type="tls", certificate_and_key=certificate)

    def _has_password(self) -> bool:
        return bool({"username", "password"} & self.keys.keys())

    def _username(self) -> str:
        return Secrets(data={_NAME: self.keys}, file=self.path).text(
            _NAME, "username", meanwhile=QUOTAS_STAY
        )

    def _certificate(self) -> CertificateAndKey | None:
        has_any = {"tls.crt", "tls.key"} & self.keys.keys()
        return (
            CertificateAndKey(secret_name=_NAME, certificate="tls.crt", key="tls.key")
            if has_any
            else None
        )


# the keys that decide a type of login, the first that is there
_TOKEN_KEYS = {
    "tokenEndpointUri": "oauthbearer",
    "token": "oauthbearer",
    "accessKeyId": "aws-msk-iam",
}


def _token(key: str) -> SecretValue:
    return SecretValue(secret_name=_NAME, key=key)


_PASSWORD = PasswordSecret(secret_name=_NAME, password="password")  # noqa: S106  (the key's name)


def read_credentials_file(path: Path) -> CredentialsFile:
    """The keys and decoded values. Raises UserActionRequired naming the file and what must hold."""
    if path.is_dir():
        return CredentialsFile(path, _mounted(path))
    try:
        documents = [
            one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None
        ]
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"cannot be read ({file_problem(error)})") from error
    except yaml.YAMLError:
        # where is not shown: it may be in the middle of a password
        raise _unreadable(path, "is not YAML") from None
    keys: dict[str, bytes] = {}
    for document in documents:
        is_list = isinstance(document, dict) and document.get("kind") == "List"
        for item in document.get("items") or () if is_list else (document,):
            if not isinstance(item, dict):
                raise _unreadable(
                    path, "must be a YAML object of keys and values, such as `username: tidegate`"
                )
            values = (
                _secret_values(path, item)
                if item.get("kind") == "Secret"
                else _encoded(_texts(path, item))
            )
            if twice := sorted(
                key for key in keys.keys() & values.keys() if keys[key] != values[key]
            ):
                raise _unreadable(
                    path,
                    f"has {', '.join(twice)} twice, with different values; leave one of them out",
                )
            keys.update(values)
    return CredentialsFile(path, keys)


def _mounted(folder: Path) -> SecretData:
    """The keys of a Secret that is mounted as a folder: a file each."""
    try:
        return {
            file.name: file.read_bytes()
            for file in folder.iterdir()
            if file.is_file() and not file.name.startswith(".")
        }
    except OSError as error:
        raise _unreadable(folder, f"cannot be read ({file_problem(error)})") from error


def _secret_values(path: Path, secret: Mapping[str, object]) -> SecretData:
    encoded, plain = secret.get("data") or {}, secret.get("stringData") or {}
    if not isinstance(encoded, dict) or not isinstance(plain, dict):
        raise _unreadable(path, "is a Secret whose data is not an object")
    try:
        decoded = {
            key: base64.b64decode(value, validate=True)
            for key, value in _texts(path, encoded).items()
        }
    except binascii.Error:
        raise _unreadable(path, "is a Secret with a value that is not base64") from None
    return {**decoded, **_encoded(_texts(path, plain))}


def _encoded(values: Mapping[str, str]) -> SecretData:
    return {key: value.encode() for key, value in values.items()}


def _texts(path: Path, values: Mapping[str, object]) -> Mapping[str, str]:
    wrong = sorted(
        str(key)
        for key, value in values.items()
        if not isinstance(key, str) or not isinstance(value, str)
    )
    if wrong:
        raise _unreadable(
            path, f"has values that are not text: {', '.join(wrong)} (put quotes around a number)"
        )
    return {key: str(value) for key, value in values.items()}


def _unreadable(path: Path, what: str) -> UserActionRequired:
    return UserActionRequired(
        Reason.SECRET_UNREADABLE, f"Credentials file {path} {what}. Nothing was done."
    )
