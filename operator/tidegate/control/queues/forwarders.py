"""The forwarders of one DelayQueue: the command line of their Pods, and their Deployment.

Forwarders log in with the queue's own Secrets, never with the policy's: to throttle them would
throttle the operator, and they would have its rights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.errors import UserActionRequired
from tidegate.kube.api import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    JsonObject,
    Kubernetes,
    ResourceKind,
)
from tidegate.kube.forwarders import (
    LOGIN_FOLDER,
    METRICS_PORT,
    ForwarderPods,
    MountedKey,
    deployment_body,
    disruption_budget_body,
    forwarders_name,
)
from tidegate.kube.rollup_jobs import is_owned
from tidegate.observe.secrets_and_hosts import Secrets, read_secrets
from tidegate.resources.authentication import (
    EXTENSION,
    TOKEN_FIELDS,
    KafkaAuthentication,
    Tls,
)
from tidegate.resources.fields import parse_moment
from tidegate.resources.kinds import DelayQueue
from tidegate.resources.policy import KafkaCluster
from tidegate.settings import ForwarderOffer, PodToken, PolicyBounds
from tidegate_logic.reasons import Reason

NOTHING_STARTS = "no forwarder is started until then"


@dataclass(frozen=True, slots=True)
class ForwardersSeen:
    """The Deployment of a queue: Pods that are available, of those wanted; how old it is."""

    available: int
    wanted: int
    age_seconds: float


def require_login(queue: DelayQueue, kafka: KafkaCluster) -> None:
    """Raise UserActionRequired for a queue whose forwarders could not log in.

    A cluster that the policy uses without a login has none.
    """
    spec = queue.spec
    if kafka.authentication is not None and spec.authentication is None:
        raise UserActionRequired(
            Reason.LOGIN_MISSING,
            "The brokers require a login, but spec.authentication is unset. Forwarders never use "
            "the policy's login; create a user for them and name its Secret there. Nothing is "
            "started for the queue until then",
        )
    if kafka.tls is not None and spec.tls is None:
        raise UserActionRequired(
            Reason.LOGIN_MISSING,
            "The policy's brokers require TLS, but spec.tls is unset. Set it, with the Secret of "
            "the authority that signed the brokers' certificate (tls: {} trusts the authorities "
            "of the image). Nothing is started for the queue until then",
        )


class ForwarderKeeper:
    """Keeps the Deployments of one policy's queues. `may_write` is the policy's Lease."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        offer: ForwarderOffer,
        *,
        bounds: PolicyBounds,
        may_write: Callable[[], bool],
        wall: Callable[[], float],
    ) -> None:
        self._kubernetes = kubernetes
        self._offer = offer
        self._bounds = bounds
        self._may_write = may_write
        self._wall = wall
        # by the queue's uid and the kind: what was applied, and the generation that it became
        self._applied: dict[tuple[str, ResourceKind], tuple[JsonObject, int]] = {}

    def keep(self, raw: JsonObject, queue: DelayQueue, kafka: KafkaCluster) -> ForwardersSeen:
        """Make the Deployment and its PodDisruptionBudget as the queue wants them.

        Raises UserActionRequired for a Secret that is missing or not meant for queues, and for
        objects of someone else with their names.
        """
        secrets = read_secrets(
            self._kubernetes,
            queue.metadata.namespace,
            queue.spec.secret_names,
            bounds=self._bounds,
        )
        pods = pods_of(queue, kafka, self._offer, secrets)
        deployment = self._keep(raw, DEPLOYMENTS, deployment_body(raw, pods))
        self._keep(raw, DISRUPTION_BUDGETS, disruption_budget_body(raw))
        return self._seen(deployment)

    def look(self, raw: JsonObject) -> ForwardersSeen | None:
        """The Deployment as it is; None = there is none of this queue."""
        found = self._read(raw, DEPLOYMENTS)
        return None if found is None else self._seen(found)

    def remove(self, raw: JsonObject) -> bool:
        """Delete both, if they are there and the queue's; whether they and their Pods are gone."""
        for kind in (DEPLOYMENTS, DISRUPTION_BUDGETS):
            found = self._read(raw, kind)
            if found is not None and self._may_write():
                metadata = found["metadata"]
                self._kubernetes.delete_managed(
                    kind, metadata["namespace"], metadata["name"], uid=metadata["uid"]
                )
            self._applied.pop((raw["metadata"]["uid"], kind), None)
        return self._read(raw, DEPLOYMENTS) is None

    def _keep(self, raw: JsonObject, kind: ResourceKind, body: JsonObject) -> JsonObject:
        metadata, key = body["metadata"], (str(raw["metadata"]["uid"]), kind)
        found = self._kubernetes.read_managed(kind, metadata["namespace"], metadata["name"])
        if found is not None and not is_owned(found, raw["metadata"]["uid"]):
            raise UserActionRequired(
                Reason.DEPLOYMENT_TAKEN,
                f"{kind.kind} {metadata['namespace']}/{metadata['name']} does not belong to this "
                "queue, so it is left alone and no forwarder is started. Delete or rename it, or "
                "give the queue another name",
            )
        if found is not None and self._applied.get(key) == (body, _generation(found)):
            return found
        if not self._may_write():
            return found or body
        made = self._kubernetes.apply_managed(kind, body)
        self._applied[key] = (body, _generation(made))
        return made

    def _read(self, raw: JsonObject, kind: ResourceKind) -> JsonObject | None:
        metadata = raw["metadata"]
        name = forwarders_name(metadata["name"])
        found = self._kubernetes.read_managed(kind, metadata["namespace"], name)
        return found if found is not None and is_owned(found, metadata["uid"]) else None

    def _seen(self, deployment: Mapping[str, Any]) -> ForwardersSeen:
        status, created = (
            deployment.get("status") or {},
            deployment["metadata"].get("creationTimestamp"),
        )
        age_seconds = 0.0 if created is None else self._wall() - parse_moment(created)
        return ForwardersSeen(
            int(status.get("availableReplicas") or 0),
            int((deployment.get("spec") or {}).get("replicas") or 0),
            max(0.0, age_seconds),
        )


def pods_of(
    queue: DelayQueue, kafka: KafkaCluster, offer: ForwarderOffer, secrets: Secrets
) -> ForwarderPods:
    """The Pods of a queue. Raises UserActionRequired if a Secret lacks a key, or for no token."""
    spec = queue.spec
    token = _token(queue, offer)
    login, files = _login(spec.authentication, spec.tls, secrets)
    if token is not None and not files:
        login = [*login, f"--client-credentials-file={LOGIN_FOLDER}"]
    zookeeper = members_zookeeper(kafka)
    arguments = [
        f"--prefix={queue.prefix}",
        f"--bootstrap-servers={kafka.bootstrap_servers}",
        *([f"--zookeeper={zookeeper}"] if zookeeper is not None else []),
        f"--guarantee={spec.guarantee}",
        *(f"--allowed={one}" for one in spec.target.allowed),
        f"--default-target={spec.target.default}",
        *(["--cancellable"] if spec.cancellable else []),
        *(
            [f"--hop-delay={one.seconds}x{one.topics}" for one in spec.delays]
            if spec.arbitrary_delays
            else []
        ),
        f"--metrics-port={METRICS_PORT}",
        *login,
    ]
    resources = spec.forwarders.resources
    return ForwarderPods(
        offer,
        spec.forwarders.replicas,
        (*map(_literal, arguments), "--member=$(POD_NAME)"),
        files,
        {} if resources is None else resources.as_document(),
        token,
    )


def _token(queue: DelayQueue, offer: ForwarderOffer) -> PodToken | None:
    """The token that the Pods log in with, if the queue names one."""
    login, namespace = queue.spec.authentication, queue.metadata.namespace
    if login is None or login.access_token_file is None:
        return None
    for one in offer.tokens:
        if (one.namespace, one.name) == (namespace, login.access_token_file):
            return one
    raise UserActionRequired(
        Reason.TOKEN_UNAVAILABLE,
        f"Namespace {namespace} has no token {login.access_token_file} (accessTokenFile)",
        consequence=NOTHING_STARTS,
        advice="Ask the owner of the operator to add it to the chart's operator.tokens, with its "
        "audience.",
    )


def members_zookeeper(kafka: KafkaCluster) -> str | None:
    """Where forwarders agree who forwards what; None = by Kafka's own groups.

    They have no login to ZooKeeper, so they use none that wants one.
    """
    zookeeper = kafka.zookeeper
    if zookeeper is None or zookeeper.authentication is not None or zookeeper.tls is not None:
        return None
    return zookeeper.connect


def _literal(argument: str) -> str:
    """The argument as a manifest writes it, where `$(NAME)` is a variable."""
    return argument.replace("$(", "$$(")


def _login(
    authentication: KafkaAuthentication | None, tls: Tls | None, secrets: Secrets
) -> tuple[Sequence[str], Sequence[MountedKey]]:
    """The options of the login, and the files of the folder that they name."""
    options: list[str] = []
    files: list[MountedKey] = []
    if tls is not None:
        options.append("--client-tls")
        files += [MountedKey(*one, "ca.crt") for one in _authority(tls, secrets)]
    password = None if authentication is None else authentication.password_secret
    if authentication is not None and password is not None:
        secrets.text(password.secret_name, password.password, meanwhile=NOTHING_STARTS)
        files.append(MountedKey(password.secret_name, password.password, "password"))
        options += [
            f"--client-authentication={authentication.type}",
            f"--client-username={authentication.username}",
        ]
    if authentication is not None and authentication.type in ("oauthbearer", "aws-msk-iam"):
        further, mounted = _token_login(authentication, secrets)
        options += further
        files += mounted
    certificate = None if authentication is None else authentication.certificate_and_key
    if certificate is not None:
        for key, path in ((certificate.certificate, "tls.crt"), (certificate.key, "tls.key")):
            secrets.value(certificate.secret_name, key, meanwhile=NOTHING_STARTS)
            files.append(MountedKey(certificate.secret_name, key, path))
    if files:
        options.append(f"--client-credentials-file={LOGIN_FOLDER}")
    return options, files


def _token_login(
    login: KafkaAuthentication, secrets: Secrets
) -> tuple[Sequence[str], Sequence[MountedKey]]:
    """The keys that are not secret, as options, and the files of the others."""
    document = login.as_document()
    plain = {name: document[name] for name in TOKEN_FIELDS if name in document}
    plain |= {f"{EXTENSION}{key}": value for key, value in (login.sasl_extensions or {}).items()}
    wanted = [
        (where.secret_name, where.key, path)
        for where, path in ((login.client_secret, "clientSecret"), (login.access_token, "token"))
        if where is not None
    ]
    if (key := login.access_key) is not None:
        wanted += [
            (key.secret_name, name, path)
            for name, path in (
                (key.access_key_id, "accessKeyId"),
                (key.secret_access_key, "secretAccessKey"),
                (key.session_token, "sessionToken"),
            )
            if name is not None
        ]
    for secret, name, _ in wanted:
        secrets.text(secret, name, meanwhile=NOTHING_STARTS)
    trusted = Tls(trusted_certificates=login.tls_trusted_certificates)
    wanted += [(*one, "tokenEndpoint.crt") for one in _authority(trusted, secrets)]
    return (
        [f"--client-login={name}={value}" for name, value in plain.items()],
        [MountedKey(*one) for one in wanted],
    )


def _authority(tls: Tls, secrets: Secrets) -> list[tuple[str, str]]:
    """Secret and key of the trusted certificate; none = the authorities of the image."""
    found: list[tuple[str, str]] = []
    for trusted in tls.trusted_certificates or ():
        name = trusted.secret_name
        keys = (
            [trusted.certificate]
            if trusted.certificate
            else secrets.keys_like(name, trusted.pattern or "*", meanwhile=NOTHING_STARTS)
        )
        for key in keys:
            secrets.value(name, key, meanwhile=NOTHING_STARTS)
            found.append((name, key))
    if len(found) > 1:
        named = ", ".join(f"{name}/{key}" for name, key in found)
        raise UserActionRequired(
            Reason.INVALID_SPEC,
            f"{len(found)} certificates are trusted ({named}), and forwarders accept one. Put them "
            f"into one key, one after the other; {NOTHING_STARTS}",
        )
    return found


def _generation(found: Mapping[str, Any]) -> int:
    return int(found["metadata"].get("generation", 0))
