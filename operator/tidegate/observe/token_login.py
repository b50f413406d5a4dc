"""Logins to the brokers by tokens, from the policy and the Secrets that it names.

It is a module of its own because a cluster without such logins does without its libraries.
"""

from collections.abc import Callable
from pathlib import Path

from tidegate.kafka.msk_iam import AwsCredentials, WebIdentity, signed_token
from tidegate.kafka.settings import TlsFiles, TokenLogin
from tidegate.kafka.tokens import ClientCredentials, GivenToken, KeptTokens
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.resources.authentication import AccessKey, KafkaAuthentication, SecretValue


def token_login(
    declared: KafkaAuthentication, secrets: Secrets, *, endpoint_tls: TlsFiles, meanwhile: str
) -> TokenLogin:
    """The login that is declared, of type oauthbearer or aws-msk-iam.

    Raises UserActionRequired, ending in `meanwhile`, for a key that a Secret lacks.
    """

    def text(where: SecretValue) -> str:
        return secrets.text(where.secret_name, where.key, meanwhile=meanwhile)

    if declared.access_key is not None:
        key = _access_key(declared.access_key, secrets, meanwhile)
        return _signed(declared, f"access key {key.access_key_id}", lambda: key)
    if declared.role_arn is not None:
        called, file = _mounted(declared, secrets)
        region = declared.region or ""
        endpoint = declared.sts_endpoint or f"https://sts.{region}.amazonaws.com"
        role = WebIdentity(declared.role_arn, file=file, called=called, endpoint=endpoint)
        return _signed(declared, f"role {declared.role_arn}", role.credentials)
    extensions = dict(declared.sasl_extensions or {})
    if declared.client_id is not None and declared.client_secret is not None:
        client = ClientCredentials(
            declared.token_endpoint_uri or "",
            declared.client_id,
            text(declared.client_secret),
            declared.scope,
            declared.audience,
            endpoint_tls,
        )
        return TokenLogin(f"client {declared.client_id}", KeptTokens(client.fetch), extensions)
    if declared.access_token is not None:
        where = declared.access_token
        called = f"The access token in {secrets.called(where.secret_name)}"
        # a Secret that is mounted as a folder changes with the Secret
        folder = secrets.file if secrets.file is not None and secrets.file.is_dir() else None
        given = (
            GivenToken(called, text=text(where))
            if folder is None
            else GivenToken(called, file=folder / where.key)
        )
    else:
        called, file = _mounted(declared, secrets)
        given = GivenToken(called, file=file)
    return TokenLogin(called[0].lower() + called[1:], KeptTokens(given.fetch), extensions)


def _mounted(declared: KafkaAuthentication, secrets: Secrets) -> tuple[str, Path]:
    """What messages call the token that is mounted for the policy, and its file."""
    name = declared.access_token_file or ""
    return f"The token {name} of namespace {secrets.namespace}", secrets.token_file(name)


def _access_key(where: AccessKey, secrets: Secrets, meanwhile: str) -> AwsCredentials:
    def text(key: str) -> str:
        return secrets.text(where.secret_name, key, meanwhile=meanwhile)

    session = None if where.session_token is None else text(where.session_token)
    return AwsCredentials(text(where.access_key_id), text(where.secret_access_key), session)


def _signed(
    declared: KafkaAuthentication, identity: str, credentials: Callable[[], AwsCredentials]
) -> TokenLogin:
    region = declared.region or ""
    return TokenLogin(identity, KeptTokens(lambda: signed_token(credentials(), region)))
