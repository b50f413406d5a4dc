"""TLS and login of a connection to Kafka, ZooKeeper or Prometheus.

The fields have the names of Strimzi's KafkaConnect. The Secrets that Strimzi makes for a KafkaUser
and for its cluster CA fit unchanged. The fields name Secrets; they hold no values.
"""

from typing import Annotated, Literal

from pydantic import Field

from tidegate.resources.fields import NO_CONTROL_CHARACTERS, ObjectName, matching, ruled
from tidegate.resources.schema import Rule, SchemaModel

_key_check, _key_schema = ruled(
    matching(r"[A-Za-z0-9._-]+", "must be a key of a Secret: letters, digits, '-', '_' and '.'")
)
SecretKey = Annotated[str, Field(min_length=1, max_length=253), _key_check, _key_schema]

_pattern_check, _pattern_schema = ruled(
    matching(
        r"[A-Za-z0-9._*-]+",
        "must be a pattern of a Secret's keys: letters, digits, '-', '_', '.', '*' for any text",
    )
)
KeyPattern = Annotated[str, Field(min_length=1, max_length=253), _pattern_check, _pattern_schema]

_username_check, _username_schema = ruled(NO_CONTROL_CHARACTERS)
Username = Annotated[str, Field(min_length=1, max_length=256), _username_check, _username_schema]


class TrustedCertificate(SchemaModel):
    """Certificates in PEM that a server's certificate may be signed by."""

    secret_name: ObjectName = Field(description="Name of a Secret in the namespace of this object.")
    certificate: SecretKey | None = Field(
        default=None, description="Key of the certificate, such as ca.crt."
    )
    pattern: KeyPattern | None = Field(
        default=None, description="Pattern of the keys of several certificates, such as *.crt."
    )

    rules = (
        Rule(
            cel="has(self.certificate) != has(self.pattern)",
            message="must have exactly one of certificate and pattern",
            holds=lambda trusted: (trusted.certificate is None) != (trusted.pattern is None),
        ),
    )


class Tls(SchemaModel):
    """Encrypts the connection and checks the server's certificate and host name."""

    trusted_certificates: tuple[TrustedCertificate, ...] | None = Field(
        default=None,
        max_length=16,
        description="Certificates of the authorities that the server's certificate must be "
        "signed by. Unset means the certificate authorities of the operator's "
        "machine.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class PasswordSecret(SchemaModel):
    """The Secret of a password."""

    secret_name: ObjectName = Field(description="Name of a Secret in the namespace of this object.")
    password: SecretKey = Field(description="Key of the password, such as password.")


class TokenSecret(SchemaModel):
    """The Secret of a token."""

    secret_name: ObjectName = Field(description="Name of a Secret in the namespace of this object.")
    token: SecretKey = Field(description="Key of the token, such as token.")


class CertificateAndKey(SchemaModel):
    """The Secret of a client certificate and its private key."""

    secret_name: ObjectName = Field(description="Name of a Secret in the namespace of this object.")
    certificate: SecretKey = Field(description="Key of the certificate in PEM, such as user.crt.")
    key: SecretKey = Field(description="Key of the private key in PEM, such as user.key.")


_USERNAME = "User name to log in with."
_CERTIFICATE = "Client certificate. Beside a password where the server wants both."


def _required(field: str, attribute: str, *types: str) -> Rule:
    """`field`, which Python calls `attribute`, is required with these types."""
    return Rule(
        cel=f"!({_one_of(types)}) || has(self.{field})",
        message=f"{field} is required with type {' or '.join(types)}",
        holds=lambda login: login.type not in types or getattr(login, attribute) is not None,
        reason="FieldValueRequired",
        field_path=f".{field}",
    )


def _refused(field: str, attribute: str, *types: str) -> Rule:
    """`field` must be left out with these types, where it would be ignored.

    `attribute` is its name in Python.
    """
    return Rule(
        cel=f"!({_one_of(types)}) || !has(self.{field})",
        message=f"{field} must be left out with type {' or '.join(types)}",
        holds=lambda login: login.type not in types or getattr(login, attribute) is None,
        reason="FieldValueForbidden",
        field_path=f".{field}",
    )


def _one_of(types: tuple[str, ...]) -> str:
    return f"self.type in [{', '.join(repr(one) for one in types)}]"


def _login_rules(*, with_password: tuple[str, ...], without: tuple[str, ...]) -> tuple[Rule, ...]:
    """Which types need a user name with its password, and what `tls` needs."""
    return (
        _required("username", "username", *with_password),
        _required("passwordSecret", "password_secret", *with_password),
        _required("certificateAndKey", "certificate_and_key", "tls"),
        _refused("username", "username", *without),
        _refused("passwordSecret", "password_secret", *without),
    )


class KafkaAuthentication(SchemaModel):
    """Login to the brokers."""

    type: Literal["scram-sha-512", "scram-sha-256", "plain", "tls"] = Field(
        description="Login method: SASL with a user name and a password, or a client "
        "certificate alone (tls)."
    )
    username: Username | None = Field(default=None, description=_USERNAME)
    password_secret: PasswordSecret | None = Field(default=None, description="The user's password.")
    certificate_and_key: CertificateAndKey | None = Field(default=None, description=_CERTIFICATE)

    rules = _login_rules(
        with_password=("scram-sha-512", "scram-sha-256", "plain"), without=("tls",)
    )


class ZooKeeperAuthentication(SchemaModel):
    """Login to ZooKeeper, as the identity of the brokers where `zookeeper.set.acl` is on."""

    type: Literal["digest", "tls"] = Field(
        description="Login method: SASL DIGEST-MD5 with a user name and a password, or a "
        "client certificate alone (tls)."
    )
    username: Username | None = Field(default=None, description=_USERNAME)
    password_secret: PasswordSecret | None = Field(default=None, description="The user's password.")
    certificate_and_key: CertificateAndKey | None = Field(default=None, description=_CERTIFICATE)

    rules = _login_rules(with_password=("digest",), without=("tls",))


class PrometheusAuthentication(SchemaModel):
    """Login to Prometheus."""

    type: Literal["basic", "bearer", "tls"] = Field(
        description="Login method: a user name and a password, a bearer token, or a client "
        "certificate alone (tls)."
    )
    username: Username | None = Field(default=None, description=_USERNAME)
    password_secret: PasswordSecret | None = Field(default=None, description="The user's password.")
    token_secret: TokenSecret | None = Field(default=None, description="The bearer token.")
    certificate_and_key: CertificateAndKey | None = Field(default=None, description=_CERTIFICATE)

    rules = (
        *_login_rules(with_password=("basic",), without=("bearer", "tls")),
        _required("tokenSecret", "token_secret", "bearer"),
        _refused("tokenSecret", "token_secret", "basic", "tls"),
    )


Authentication = KafkaAuthentication | ZooKeeperAuthentication | PrometheusAuthentication

CERTIFICATE_NEEDS_TLS = Rule(
    cel="!has(self.authentication) || !has(self.authentication.certificateAndKey) || has(self.tls)",
    message="tls is required with authentication.certificateAndKey: a certificate is shown over "
    "TLS only (tls: {} trusts the authorities of the operator's own machine)",
    reason="FieldValueRequired",
    field_path=".tls",
    holds=lambda part: (
        part.authentication is None
        or part.authentication.certificate_and_key is None
        or part.tls is not None
    ),
)


def secret_names(tls: Tls | None, authentication: Authentication | None) -> frozenset[str]:
    """The Secrets that a connection needs."""
    trusted = (tls.trusted_certificates or ()) if tls is not None else ()
    logins: list[PasswordSecret | TokenSecret | CertificateAndKey | None] = []
    if authentication is not None:
        logins += [authentication.password_secret, authentication.certificate_and_key]
        if isinstance(authentication, PrometheusAuthentication):
            logins.append(authentication.token_secret)
    return frozenset(part.secret_name for part in (*trusted, *logins) if part is not None)
