"""Turns a policy's `metrics` and its Secrets into settings for reading Prometheus. No value of a Secret is ever shown.

Keys: `token`, or `username` and `password`, in the Secret of credentials; `ca.crt` in that of the certificate authority, which is
written to a private folder because the HTTP library wants a file.
"""

from pathlib import Path

from tidegate.control.credentials import SecretData, lacking, secret_text, write_private
from tidegate.prometheus.settings import BasicLogin, BearerLogin, BrokerInstances, BrokerLabel, MetricsSettings, Preset, PrometheusServer
from tidegate.prometheus.settings import Queries as Selectors
from tidegate.resources.policy import BrokerIds, MetricQueries, MetricsSource


def metrics_settings(spec: MetricsSource, *, login: SecretData, authority: SecretData, folder: Path) -> MetricsSettings:
    """How to read the policy's metrics. Raises NeedsMending with SECRET_UNREADABLE when a Secret lacks a key."""
    server = PrometheusServer(spec.prometheus.url, login=_login(spec, login), ca_file=_authority(spec, authority, folder))
    return MetricsSettings(
        server,
        Preset(spec.preset_or_default),
        _queries(spec.queries),
        None if spec.broker_ids is None else _identity(spec.broker_ids),
        scrape_interval_seconds=spec.scrape_interval_seconds_or_default,
        stale_after_seconds=spec.stale_after_seconds_or_default,
    )


def named_server(url: str, secret: SecretData, folder: Path) -> PrometheusServer:
    """A server that no policy names, with whatever of the keys there is: a login, an authority, both, or neither.

    Raises NeedsMending with SECRET_UNREADABLE for half a login, and where there are keys but none of these.
    """
    login, has_authority = _login_in(secret), "ca.crt" in secret
    has_half = login is None and bool({"token", "username", "password"} & secret.keys())
    if has_half or (secret and login is None and not has_authority):
        raise lacking("credentials for Prometheus must have the key token, both keys username and password, or ca.crt", meanwhile=_NOT_READ)
    return PrometheusServer(url, login=login, ca_file=_authority_in(secret, folder) if has_authority else None)


def _login(spec: MetricsSource, secret: SecretData) -> BearerLogin | BasicLogin | None:
    if spec.prometheus.credentials_secret_ref is None:
        return None
    login = _login_in(secret)
    if login is None:
        raise lacking("the Secret for Prometheus must have the key token, or both keys username and password", meanwhile=_MEANWHILE)
    return login


def _login_in(secret: SecretData) -> BearerLogin | BasicLogin | None:
    token, username, password = (secret_text(secret, key) for key in ("token", "username", "password"))
    if token:
        return BearerLogin(token)
    return BasicLogin(username, password) if username and password else None


def _authority(spec: MetricsSource, secret: SecretData, folder: Path) -> str | None:
    if spec.prometheus.ca_secret_ref is None:
        return None
    if "ca.crt" not in secret:
        raise lacking("the Secret named by metrics.prometheus.caSecretRef must have the key ca.crt", meanwhile=_MEANWHILE)
    return _authority_in(secret, folder)


def _authority_in(secret: SecretData, folder: Path) -> str:
    return write_private(folder / "prometheus-ca.crt", secret["ca.crt"])


_MEANWHILE = "load is not read until then"
_NOT_READ = "nothing was read"


def _queries(declared: MetricQueries | None) -> Selectors:
    if declared is None:
        return Selectors()
    return Selectors(declared.egress, declared.ingress, declared.user_fetch, declared.user_produce)


def _identity(ids: BrokerIds) -> BrokerLabel | BrokerInstances:
    if ids.label is not None:
        return BrokerLabel(ids.label)
    return BrokerInstances({entry.instance: entry.id for entry in ids.instances or ()})
