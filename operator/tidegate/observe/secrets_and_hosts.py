"""What a policy may make the operator use: Secrets with a label, and hosts of a list.

Users who can write a policy choose addresses and name Secrets, but the operator reads and sends
with its own rights. So a Secret must carry the label CREDENTIALS, which only users who can write
Secrets can put there, and the operator's owner may list the hosts.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

from urllib3.util import parse_url

from tidegate.errors import InvalidResource, TidegateError, UserActionRequired
from tidegate.kube.api import Kubernetes
from tidegate.resources.policy import PolicySpec
from tidegate.settings import ANY, UNBOUNDED, PolicyBounds
from tidegate_logic.reasons import Reason

CREDENTIALS = "tidegate.io/credentials"
SecretData = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Secrets:
    """The Secrets of one namespace that a connection needs, by name.

    With `file` all of them come from that file instead. Whatever is missing raises
    UserActionRequired with SECRET_UNREADABLE, which names the Secret and the key.
    """

    namespace: str = ""
    data: Mapping[str, SecretData] = field(default_factory=dict, repr=False)
    file: Path | None = None
    token_folder: Path = Path(UNBOUNDED.token_folder)

    def value(self, secret: str, key: str, *, meanwhile: str) -> bytes:
        """The value; an empty one counts as missing. `meanwhile` = what happens until it is set."""
        value = self.data.get(secret, {}).get(key)
        if not value:
            what = "has no key" if value is None else "has nothing in its key"
            raise _unreadable(f"{self.called(secret)} {what} {key}", meanwhile)
        return value

    def text(self, secret: str, key: str, *, meanwhile: str) -> str:
        """The value as text without line ends around it, which editors add."""
        try:
            text = self.value(secret, key, meanwhile=meanwhile).decode("utf-8").strip("\r\n")
        except UnicodeDecodeError:
            raise _unreadable(
                f"{self.called(secret)} must have UTF-8 text in its key {key}", meanwhile
            ) from None
        if not text:
            raise _unreadable(f"{self.called(secret)} has nothing in its key {key}", meanwhile)
        return text

    def token_file(self, name: str) -> Path:
        """Where the owner of the operator mounts the token of this name for the namespace."""
        return self.token_folder / self.namespace / name

    def keys_like(self, secret: str, pattern: str, *, meanwhile: str) -> list[str]:
        """The keys that match `pattern`, in order; there is at least one."""
        found = sorted(key for key in self.data.get(secret, {}) if fnmatchcase(key, pattern))
        if not found:
            raise _unreadable(f"{self.called(secret)} has no key that matches {pattern}", meanwhile)
        return found

    def called(self, secret: str) -> str:
        """What messages call the Secret."""
        return (
            f"Credentials file {self.file}"
            if self.file is not None
            else f"Secret {self.namespace}/{secret}"
        )


def _unreadable(what: str, meanwhile: str) -> UserActionRequired:
    return UserActionRequired(Reason.SECRET_UNREADABLE, what, consequence=meanwhile)


def read_secrets(
    kubernetes: Kubernetes,
    namespace: str,
    names: Collection[str],
    *,
    known: Secrets | None = None,
    bounds: PolicyBounds = UNBOUNDED,
) -> Secrets:
    """Read these Secrets. One that cannot be read comes from `known`, or its error is raised.

    Raises UserActionRequired for one that policies may not use, also if it was known.
    """
    data: dict[str, SecretData] = {}
    for name in sorted(names):
        try:
            found = kubernetes.read_secret(namespace, name)
        except TidegateError:
            if known is None or name not in known.data:
                raise
            data[name] = known.data[name]
            continue
        is_named = bool({ANY, name} & set(bounds.unlabelled_secrets))
        if not is_named and found.labels.get(CREDENTIALS) != "true":
            raise UserActionRequired(
                Reason.SECRET_NOT_ALLOWED,
                f'Secret {namespace}/{name} lacks the label {CREDENTIALS}: "true", without which '
                "no policy may use it; nothing of it is sent anywhere. Someone who can write "
                f"Secrets can allow it: kubectl label secret -n {namespace} {name} "
                f"{CREDENTIALS}=true",
            )
        data[name] = dict(found)
    return Secrets(namespace, data, token_folder=Path(bounds.token_folder))


# --- hosts ----------------------------------------------------------------------------------------


def refuse_other_hosts(policy_key: str, spec: PolicySpec, bounds: PolicyBounds) -> None:
    """Raise InvalidResource for the first address with a host that is not on the list, if any.

    Kafka's brokers name further ones themselves; those are of a cluster that is on the list.
    """
    if not bounds.allowed_hosts:
        return
    for field_name, host, port in _addresses(spec):
        if not is_allowed(host, port, bounds):
            raise InvalidResource(
                f"BrokerBandwidthPolicy {policy_key}: {field_name} names the host {host}, which is "
                "not among those that this operator may connect to (its option --allowed-host, the "
                "chart's operator.allowedHosts)",
                Reason.HOST_NOT_ALLOWED,
                consequence="nothing is connected to and every quota stays as it is until the "
                "address or that list is changed",
            )


def is_allowed(host: str, port: str, bounds: PolicyBounds) -> bool:
    """Whether the operator's owner lets it connect there; without a list, anywhere."""
    listed = bounds.allowed_hosts
    return not listed or any(_fits(host, port, pattern) for pattern in listed)


def _addresses(spec: PolicySpec) -> Iterator[tuple[str, str, str]]:
    """Field, host and port ("" = not given) of each address in the spec."""
    kafka = spec.kafka
    for server in kafka.bootstrap_servers.split(","):
        yield "spec.kafka.bootstrapServers", *_host_and_port(server)
    login = kafka.authentication
    if login is not None:
        for name, url in (
            ("tokenEndpointUri", login.token_endpoint_uri),
            ("stsEndpoint", login.sts_endpoint),
        ):
            if url is not None:
                yield f"spec.kafka.authentication.{name}", *_host_and_port(urlsplit(url).netloc)
    if kafka.zookeeper is not None:
        for server in kafka.zookeeper.connect.partition("/")[0].split(","):
            yield "spec.kafka.zookeeper.connect", *_host_and_port(server)
    if spec.metrics is not None:
        url = spec.metrics.prometheus.url
        # as the client reads it that connects there
        parsed = parse_url(url)
        yield "spec.metrics.prometheus.url", *_host_and_port(parsed.netloc or "")
    if spec.rollup is not None and not spec.rollup.storage.url.startswith("file:"):
        # a bucket, or a container at its account's host
        authority = urlsplit(spec.rollup.storage.url).netloc.rpartition("@")[2]
        yield "spec.rollup.storage.url", *_host_and_port(authority)
    if spec.rollup is not None and spec.rollup.storage.endpoint is not None:
        authority = urlsplit(spec.rollup.storage.endpoint).netloc
        yield "spec.rollup.storage.endpoint", *_host_and_port(authority)
    catalog = None if spec.rollup is None else spec.rollup.storage.catalog
    if catalog is not None:
        yield "spec.rollup.storage.catalog.uri", *_host_and_port(urlsplit(catalog.uri).netloc)


def _host_and_port(authority: str) -> tuple[str, str]:
    host, _, port = authority.rpartition(":")
    is_bare_ipv6 = authority.count(":") > 1 and not authority.startswith("[")
    if not host or not port.isdecimal() or is_bare_ipv6:
        host, port = authority, ""
    return host.strip("[]").rstrip(".").lower(), port


def _fits(host: str, port: str, pattern: str) -> bool:
    """Whether the pattern covers it: `host`, `*.domain` or `*`, and its port if it has one."""
    wanted, wanted_port = _host_and_port(pattern)
    if wanted_port and port != wanted_port:
        return False
    return wanted in (ANY, host) or (wanted.startswith("*.") and host.endswith(wanted[1:]))
