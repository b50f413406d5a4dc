"""TLS and login of a connection to Kafka, ZooKeeper or Prometheus.

The fields have the names of Strimzi's KafkaConnect. The Secrets that Strimzi makes for a KafkaUser
and for its cluster CA fit unchanged. The fields name Secrets; they hold no values.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.alias_generators import to_camel

from tidegate.resources.fields import (
    NO_CONTROL_CHARACTERS,
    HttpsUrl,
    ObjectName,
    matching,
    ruled,
)
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

TokenText = Annotated[str, Field(min_length=1, max_length=1024), _username_check, _username_schema]

_region_check, _region_schema = ruled(
    matching(r"[a-z]{2,}(?:-[a-z0-9]+)+", "must be a region of AWS, such as eu-central-1")
)
Region = Annotated[str, Field(min_length=1, max_length=64), _region_check, _region_schema]

_role_check, _role_schema = ruled(
    matching(
        r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+",
        "must be the ARN of a role, such as arn:aws:iam::123456789012:role/tidegate",
    )
)
RoleArn = Annotated[str, Field(min_length=1, max_length=2048), _role_check, _role_schema]

_token_file_check, _token_file_schema = ruled(
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]*",
        "must be the name of a token that the chart's operator.tokens mounts, such as kafka: it "
        "is not a path",
    )
)
TokenFileName = Annotated[
    str, Field(min_length=1, max_length=63), _token_file_check, _token_file_schema
]

# RFC 7628, 3.1: what a client may send beside its token; `auth` is the token's own
_EXTENSION_NAME, _EXTENSION_VALUE = "[A-Za-z]+", r"[\x20-\x7e]+"
_extensions_check, _extensions_schema = ruled(
    Rule(
        cel=f"self.all(name, name != 'auth' && name.matches('^{_EXTENSION_NAME}$') && "
        f"self[name].matches(r'^{_EXTENSION_VALUE}$'))",
        message="every key must consist of letters and not be auth, every value of printable ASCII",
        holds=lambda extensions: all(
            name != "auth"
            and re.fullmatch(_EXTENSION_NAME, name)
            and re.fullmatch(_EXTENSION_VALUE, value)
            for name, value in extensions.items()
        ),
    )
)
SaslExtensions = Annotated[
    dict[str, Annotated[str, Field(min_length=1, max_length=256)]],
    Field(min_length=1, max_length=10),
    _extensions_check,
    _extensions_schema,
]


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


class SecretValue(SchemaModel):
    """One key of a Secret."""

    secret_name: ObjectName = Field(description="Name of a Secret in the namespace of this object.")
    key: SecretKey = Field(description="Key of the value, such as clientSecret.")


class AccessKey(SchemaModel):
    """The Secret of an access key of AWS."""

    secret_name: ObjectName = Field(description="Name of a Secret in the namespace of this object.")
    access_key_id: SecretKey = Field(description="Key of the access key's id.")
    secret_access_key: SecretKey = Field(description="Key of the secret access key.")
    session_token: SecretKey | None = Field(
        default=None,
        description="Key of the session token. Unset means a lasting access key, which has none.",
    )


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


# Which of the optional fields of a login to the brokers belong to which type, by their names here.
_OF_ENDPOINTS = ("client_id", "client_secret", "scope", "audience", "tls_trusted_certificates")
_OF_TOKENS = ("token_endpoint_uri", "access_token", "sasl_extensions", *_OF_ENDPOINTS)
_OF_AWS = ("region", "access_key", "role_arn", "sts_endpoint")


def _all_unset(attributes: tuple[str, ...], login: Any) -> bool:
    return all(getattr(login, one) is None for one in attributes)


def _none_set(attributes: tuple[str, ...]) -> str:
    """That none of these fields is set, in CEL."""
    return " && ".join(f"!has(self.{to_camel(one)})" for one in attributes)


def _only_with(kind: str, attributes: tuple[str, ...]) -> Rule:
    names = ", ".join(map(to_camel, attributes))
    return Rule(
        cel=f"self.type == '{kind}' || ({_none_set(attributes)})",
        message=f"type {kind} alone has {names}: leave them out or change the type",
        reason="FieldValueForbidden",
        field_path=".type",
        holds=lambda login: login.type == kind or _all_unset(attributes, login),
    )


class KafkaAuthentication(SchemaModel):
    """Login to the brokers."""

    type: Literal[
        "scram-sha-512",
        "scram-sha-256",
        "plain",
        "tls",
        "oauthbearer",
        "aws-msk-iam",
        "gssapi",
    ] = Field(
        description="Login method: SASL with a user name and a password; a client certificate "
        "alone (tls); a token of OAuth (oauthbearer); an identity of AWS, for Amazon MSK "
        "(aws-msk-iam). gssapi (Kerberos) is refused."
    )
    username: Username | None = Field(default=None, description=_USERNAME)
    password_secret: PasswordSecret | None = Field(default=None, description="The user's password.")
    certificate_and_key: CertificateAndKey | None = Field(default=None, description=_CERTIFICATE)
    token_endpoint_uri: HttpsUrl | None = Field(
        default=None,
        description="With type oauthbearer: the token endpoint of the authorization server, which "
        "gives tokens for client credentials.",
    )
    client_id: TokenText | None = Field(
        default=None, description="Client that a token is requested for."
    )
    client_secret: SecretValue | None = Field(default=None, description="The client's secret.")
    scope: TokenText | None = Field(
        default=None,
        description="Scopes to request, separated by spaces. Unset means the server's default.",
    )
    audience: TokenText | None = Field(
        default=None,
        description="Audience to request, for servers with this parameter. Unset means none.",
    )
    tls_trusted_certificates: tuple[TrustedCertificate, ...] | None = Field(
        default=None,
        max_length=16,
        description="Certificates of the authorities that the certificate of the token endpoint "
        "must be signed by. Unset means the certificate authorities of the operator's machine.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    access_token: SecretValue | None = Field(
        default=None,
        description="With type oauthbearer: the access token itself, which something else renews.",
    )
    access_token_file: TokenFileName | None = Field(
        default=None,
        description="With type oauthbearer: name of a token that the chart's operator.tokens "
        "mounts for this namespace, used as the access token; the forwarders of a DelayQueue get "
        "one for that audience, of their own namespace's ServiceAccount default. With type "
        "aws-msk-iam and roleArn: the token to take the role with.",
    )
    sasl_extensions: SaslExtensions | None = Field(
        default=None,
        description="With type oauthbearer: extensions to send with the token, such as "
        "logicalCluster. Unset means none.",
    )
    region: Region | None = Field(
        default=None, description="With type aws-msk-iam: region of the cluster."
    )
    access_key: AccessKey | None = Field(
        default=None, description="With type aws-msk-iam: the access key to sign with."
    )
    role_arn: RoleArn | None = Field(
        default=None,
        description="With type aws-msk-iam: role to take, with the token of accessTokenFile (web "
        "identity), instead of an access key.",
    )
    sts_endpoint: HttpsUrl | None = Field(
        default=None,
        description="With roleArn: URL of AWS STS. Unset means https://sts.REGION.amazonaws.com.",
    )

    rules = (
        Rule(
            cel="self.type != 'gssapi'",
            message="type gssapi (Kerberos) is not offered: give Tidegate a user with "
            "scram-sha-512, tls or oauthbearer on a listener that has it",
            field_path=".type",
            holds=lambda login: login.type != "gssapi",
        ),
        *_login_rules(
            with_password=("scram-sha-512", "scram-sha-256", "plain"),
            without=("tls", "oauthbearer", "aws-msk-iam"),
        ),
        _only_with("oauthbearer", _OF_TOKENS),
        _only_with("aws-msk-iam", _OF_AWS),
        Rule(
            cel="self.type in ['oauthbearer', 'aws-msk-iam'] || !has(self.accessTokenFile)",
            message="types oauthbearer and aws-msk-iam alone have accessTokenFile: leave it out or "
            "change the type",
            reason="FieldValueForbidden",
            field_path=".accessTokenFile",
            holds=lambda login: (
                login.type in ("oauthbearer", "aws-msk-iam") or login.access_token_file is None
            ),
        ),
        Rule(
            cel="self.type != 'oauthbearer' || [has(self.tokenEndpointUri), has(self.accessToken), "
            "has(self.accessTokenFile)].filter(given, given).size() == 1",
            message="type oauthbearer needs exactly one of tokenEndpointUri, accessToken and "
            "accessTokenFile",
            field_path=".type",
            holds=lambda login: (
                login.type != "oauthbearer"
                or [login.token_endpoint_uri, login.access_token, login.access_token_file].count(
                    None
                )
                == 2
            ),
        ),
        Rule(
            cel="has(self.tokenEndpointUri) ? has(self.clientId) && has(self.clientSecret) : "
            f"({_none_set(_OF_ENDPOINTS)})",
            message="tokenEndpointUri needs clientId and clientSecret; it alone has these, scope, "
            "audience and tlsTrustedCertificates",
            field_path=".tokenEndpointUri",
            holds=lambda login: (
                _all_unset(_OF_ENDPOINTS, login)
                if login.token_endpoint_uri is None
                else None not in (login.client_id, login.client_secret)
            ),
        ),
        Rule(
            cel="self.type != 'aws-msk-iam' || (has(self.region) && has(self.accessKey) != "
            "has(self.roleArn) && has(self.roleArn) == has(self.accessTokenFile) && "
            "(has(self.roleArn) || !has(self.stsEndpoint)))",
            message="type aws-msk-iam needs region, and either accessKey or roleArn with "
            "accessTokenFile; stsEndpoint is for roleArn",
            field_path=".type",
            holds=lambda login: (
                login.type != "aws-msk-iam"
                or (
                    login.region is not None
                    and (login.access_key is None) != (login.role_arn is None)
                    and (login.role_arn is None) == (login.access_token_file is None)
                    and (login.role_arn is not None or login.sts_endpoint is None)
                )
            ),
        ),
    )


# How a credentials file, and the options of a forwarder, name what is not secret of such a login.
TOKEN_FIELDS = ("tokenEndpointUri", "clientId", "scope", "audience", "region")
EXTENSION = "extension."


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

TOKENS_NEED_TLS = Rule(
    cel="!has(self.authentication) || !(self.authentication.type in ['oauthbearer', 'aws-msk-iam'])"
    " || has(self.tls)",
    message="tls is required with a login by tokens: anyone who reads a token can use it",
    reason="FieldValueRequired",
    field_path=".tls",
    holds=lambda part: (
        part.authentication is None
        or part.authentication.type not in ("oauthbearer", "aws-msk-iam")
        or part.tls is not None
    ),
)


def secret_names(tls: Tls | None, authentication: Authentication | None) -> frozenset[str]:
    """The Secrets that a connection needs."""
    parts: list[Any] = [*((tls.trusted_certificates or ()) if tls is not None else ())]
    if authentication is not None:
        parts += [authentication.password_secret, authentication.certificate_and_key]
    if isinstance(authentication, PrometheusAuthentication):
        parts.append(authentication.token_secret)
    if isinstance(authentication, KafkaAuthentication):
        parts += authentication.tls_trusted_certificates or ()
        parts += [
            authentication.client_secret,
            authentication.access_token,
            authentication.access_key,
        ]
    return frozenset(part.secret_name for part in parts if part is not None)
