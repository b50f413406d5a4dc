"""Kubernetes through the official client: custom resources, Secrets, Events, Leases, Jobs.

One request a method, but for lists (in chunks) and finalizers (read, then change with a test).
First in this module come the errors of failed requests, then `Transport`, which sends a request.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION
from urllib3.exceptions import ConnectTimeoutError, HTTPError, MaxRetryError, NewConnectionError

from tidegate import __version__
from tidegate.causes import cause_of, innermost
from tidegate.errors import (
    Conflict,
    Incomplete,
    InvalidResource,
    NotFound,
    OutcomeUnknown,
    ServerFault,
    TidegateError,
    Unauthorized,
    Unreachable,
)
from tidegate.kube.api import (
    LEASE_CALL_SECONDS,
    PASS_ANNOTATION,
    Event,
    JsonObject,
    LeaseRecord,
    Listing,
    ObjectRef,
    ResourceKind,
    Secret,
)
from tidegate.retry import retry
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339

# --- failed requests as tidegate.errors, with a sentence that a person can act on -----------------
#
# The question that decides: can the request have been carried out? A read never changes anything.
# A write that never left, or that the server refused, did not happen; for every other write the
# outcome is unknown.


_NEVER_SENT = (NewConnectionError, ConnectTimeoutError)
# The server's own overload protection, which refuses before it looks; a 503 may come from a proxy
# that lost the server half-way.
_REFUSED_UNDONE = 429
_TERMINATING = "NamespaceTerminating"


def failure_of(
    error: ApiException | HTTPError, *, what: str, reason: Reason, is_write: bool
) -> TidegateError:
    """The error to raise for a failed request.

    `what` completes "could not ..."; `reason` is given to NotFound and Incomplete, whose meaning
    depends on what was asked.
    """
    if isinstance(error, HTTPError):
        return _broken_connection(error, what=what, is_write=is_write)
    return _refusal(error, what=what, reason=reason, is_write=is_write)


def retry_after_seconds(error: ApiException) -> float:
    """How long the server asks to wait; 0 when it names no time."""
    value = (error.headers or {}).get("Retry-After", "")
    return float(value) if value.isdecimal() else 0.0


def server_message(error: ApiException) -> str:
    """The server's message, without headers and request ids.

    Its HTTP reason when the body is not a Kubernetes Status, or why there was no TLS.
    """
    match _handshake(error):
        case ssl.SSLCertVerificationError(verify_message=why):
            return f"its certificate is refused: {why}"
        case ssl.SSLError() as inner:
            return cause_of(inner)
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason or "no reason given").replace("\n", ": ")


def _is_of_a_namespace_in_deletion(error: ApiException) -> bool:
    try:
        causes = json.loads(error.body or "")["details"]["causes"]
        return any(cause.get("reason") == _TERMINATING for cause in causes)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _broken_connection(error: HTTPError, *, what: str, is_write: bool) -> TidegateError:
    outer = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
    if is_write and not isinstance(outer, _NEVER_SENT):
        return OutcomeUnknown(
            f"The connection to Kubernetes broke while Tidegate tried to {what}: "
            f"{cause_of(error)}.",
            consequence=_READ_BACK,
        )
    return Unreachable(
        Reason.KUBERNETES_UNREACHABLE,
        f"Kubernetes did not answer, so Tidegate could not {what}: {cause_of(error)}.",
        consequence="It tries again by itself.",
    )


_READ_BACK = "It is read back first."


def _refusal(error: ApiException, *, what: str, reason: Reason, is_write: bool) -> TidegateError:
    status, message = error.status, server_message(error)
    could_not = f"Tidegate could not {what}"
    if status == 403 and _is_of_a_namespace_in_deletion(error):
        return Unauthorized(
            f"{could_not}: the namespace is being deleted and accepts no new objects ({message}). "
            "No right is missing, and no action is needed."
        )
    if status in (401, 403):
        return Unauthorized(
            f"{could_not}: Kubernetes refused it ({status}): {message}.",
            consequence="Give the operator's ServiceAccount this right.",
        )
    if status == 404:
        return NotFound(reason, f"{could_not}: it does not exist ({message}).")
    if status == 409:
        return Conflict(
            f"{could_not}: another writer changed it at the same moment ({message}).",
            consequence="Tidegate reads it again and retries.",
        )
    if status == 410:
        return Incomplete(
            reason,
            f"{could_not} in one piece: the list expired while it was read ({message}).",
            consequence="It is read again.",
        )
    if status in (400, 413, 422):
        return InvalidResource(
            f"{could_not}: Kubernetes refuses what was sent ({status}): {message}"
        )
    was_sent = not isinstance(_handshake(error), ssl.SSLCertVerificationError)
    if is_write and status != _REFUSED_UNDONE and was_sent:
        return (ServerFault if status else OutcomeUnknown)(
            f"Kubernetes failed while Tidegate tried to {what} ({status}): {message}.",
            consequence=_READ_BACK,
        )
    fault = f"Kubernetes is overloaded or failing ({status})" if status else "no connection by TLS"
    return Unreachable(
        Reason.KUBERNETES_UNREACHABLE,
        f"{could_not}: {fault}: {message}.",
        consequence="Tidegate tries again.",
    )


def _handshake(error: ApiException) -> BaseException | None:
    # The client reports a failed TLS handshake, which precedes any request, as status 0.
    return None if error.status or error.__context__ is None else innermost(error.__context__)


# --- one request: a time limit, few repeats for reads and none for writes -------------------------
#
# Answers are read as raw JSON and not through the client's models, which drop unknown fields and
# cost ten times the work.


_CONNECT_TIMEOUT_SECONDS = 5.0
# Passes of a hundred policies begin together after a take-over, and Leases are renewed beside them;
# a connection too many would be closed after each call.
_KEPT_CONNECTIONS = 128
_PAUSES_SECONDS = (0.2, 0.8)  # before the second and the third attempt of a read
_LONGEST_PAUSE_SECONDS = 5.0
_RETRIED_STATUSES = (429, 500, 502, 503, 504)

Call = Callable[..., Any]


# What the library raises of a kubeconfig that it cannot read: no YAML, no text, or no mapping where
# one should be.
_UNREADABLE = (
    ConfigException,
    OSError,
    yaml.YAMLError,
    UnicodeDecodeError,
    TypeError,
    AttributeError,
)


def connect(
    kubeconfig: Path | None = None, context: str | None = None, as_user: str | None = None
) -> client.ApiClient:
    """A client for the cluster this process runs in, or for that of a kubeconfig.

    The kubeconfig counts outside of a cluster, and where `kubeconfig` or `context` is given. With
    `as_user` the API server is asked as that user, which the login needs the right for.

    It connects with the first request. Raises Unauthorized when there is no usable configuration.
    """
    settings = client.Configuration()
    in_pod = kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ
    files = str(kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION).split(os.pathsep)
    try:
        if in_pod:
            config.load_incluster_config(client_configuration=settings)
        else:
            config.load_kube_config(
                None if kubeconfig is None else str(kubeconfig),
                context,
                client_configuration=settings,
            )
    except _UNREADABLE as error:
        where = "" if kubeconfig is None else f" from {kubeconfig}"
        is_there = in_pod or any(Path(one).expanduser().exists() for one in files)
        why = "there is no kubeconfig"
        if is_there:
            is_said = isinstance(error, ConfigException | OSError)
            why = str(error) if is_said else "the kubeconfig is not a YAML mapping, or is damaged"
        raise Unauthorized(
            f"Tidegate does not know how to reach Kubernetes{where}: {why}",
            advice="Give --kubeconfig FILE, or run it in a Pod with a ServiceAccount.",
        ) from error
    # The library would repeat some requests by itself, a replaced Lease among them; what is safe to
    # repeat is decided here.
    settings.retries = urllib3.Retry(total=False)
    settings.connection_pool_maxsize = _KEPT_CONNECTIONS
    api_client = client.ApiClient(settings)
    # the audit log shows it, and managedFields name the part before the slash as the manager
    api_client.user_agent = f"tidegate/{__version__}"
    if as_user is not None:
        api_client.set_default_header("Impersonate-User", as_user)
    return api_client


_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE = "default"


def context_namespace(kubeconfig: Path | None = None, context: str | None = None) -> str:
    """The namespace that kubectl acts in when none is named: the context's, or the Pod's own.

    `default` where neither names one, or there is no kubeconfig. Nothing is asked.
    """
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        with contextlib.suppress(OSError):
            return _POD_NAMESPACE.read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
    try:
        contexts, active = config.list_kube_config_contexts(
            None if kubeconfig is None else str(kubeconfig)
        )
    except _UNREADABLE:  # connect says what is wrong with it
        return _DEFAULT_NAMESPACE
    named = next((one for one in contexts if one["name"] == context), None) if context else active
    return str(((named or {}).get("context") or {}).get("namespace") or _DEFAULT_NAMESPACE)


class Transport:
    """Carries out single calls of the official client.

    `timeouts` are those of connecting and of reading, or one number for both together. A read is
    tried `read_attempts` times. `pause` waits between attempts; a test hands in its own.
    """

    def __init__(
        self,
        *,
        timeouts: tuple[float, float] | float = (_CONNECT_TIMEOUT_SECONDS, 10.0),
        read_attempts: int = 1 + len(_PAUSES_SECONDS),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeouts = timeouts
        self._read_attempts = read_attempts
        self._pause = pause

    def read(
        self, call: Call, *args: str, what: str, reason: Reason, **parameters: Any
    ) -> JsonObject:
        """The answer to a call that changes nothing; up to three attempts if the server is busy."""
        try:
            return retry(
                lambda: self._once(call, *args, **parameters),
                attempts=self._read_attempts,
                is_worth_repeating=_is_worth_repeating,
                pause_seconds=_pause_seconds,
                sleep=self._pause,
            )
        except (ApiException, HTTPError) as error:
            raise failure_of(error, what=what, reason=reason, is_write=False) from error

    def write(
        self, call: Call, *args: str, what: str, reason: Reason, **parameters: Any
    ) -> JsonObject:
        """The answer to a call that changes something; made once, whatever happens."""
        try:
            return self._once(call, *args, **parameters)
        except (ApiException, HTTPError) as error:
            raise failure_of(error, what=what, reason=reason, is_write=True) from error

    def _once(self, call: Call, *args: str, **parameters: Any) -> JsonObject:
        response = call(
            *args, **parameters, _preload_content=False, _request_timeout=self._timeouts
        )
        try:
            answer: JsonObject = json.loads(response.data)
            return answer
        finally:
            response.release_conn()


class CoreObjects:
    """Objects of the core group (Secrets, ConfigMaps, namespaces, claims) as JSON.

    The library's interface for custom objects cannot address them.

    The library's CoreV1Api would do, but it imports 250 modules of typed models: 22 MB of memory
    for three calls that need none.
    """

    _PLACE = "/api/v1/namespaces/{namespace}/{plural}"

    def __init__(self, api_client: client.ApiClient) -> None:
        self._api_client = api_client

    def read(self, namespace: str, plural: str, name: str, **options: Any) -> Any:
        """GET one object."""
        return self._call(
            "GET",
            f"{self._PLACE}/{{name}}",
            {"namespace": namespace, "plural": plural, "name": name},
            None,
            **options,
        )

    def read_namespace(self, name: str, **options: Any) -> Any:
        """GET a namespace."""
        return self._call("GET", "/api/v1/namespaces/{name}", {"name": name}, None, **options)

    def version(self, **options: Any) -> Any:
        """GET the server's version."""
        return self._call("GET", "/version", {}, None, **options)

    def create(
        self, namespace: str, plural: str, *, body: Mapping[str, Any], **options: Any
    ) -> Any:
        """POST a new object."""
        return self._call(
            "POST", self._PLACE, {"namespace": namespace, "plural": plural}, body, **options
        )

    def replace(
        self, namespace: str, plural: str, name: str, *, body: Mapping[str, Any], **options: Any
    ) -> Any:
        """PUT an object over the one of its name.

        The server compares the resource version.
        """
        return self._call(
            "PUT",
            f"{self._PLACE}/{{name}}",
            {"namespace": namespace, "plural": plural, "name": name},
            body,
            **options,
        )

    def _call(
        self,
        method: str,
        path: str,
        parts: Mapping[str, str],
        body: Mapping[str, Any] | None,
        *,
        _request_timeout: tuple[float, float],
        _preload_content: bool = False,
    ) -> Any:
        """One request as the library's own calls make it.

        Raises ApiException for an answer that is no success, as they do.
        """
        headers = {"Accept": "application/json"} | (
            {"Content-Type": "application/json"} if body is not None else {}
        )
        request = self._api_client.param_serialize(
            method,
            path,
            path_params=parts,
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        response = self._api_client.call_api(*request, _request_timeout=_request_timeout)
        if not 200 <= response.status <= 299:
            response.read()
            raise ApiException.from_response(http_resp=response, body=None, data=None)
        return response.response


def _is_worth_repeating(error: BaseException) -> bool:
    return isinstance(error, HTTPError) or (
        isinstance(error, ApiException) and error.status in _RETRIED_STATUSES
    )


def _pause_seconds(attempt: int, error: BaseException) -> float:
    """Our own pause, or the longer one that the server asks for."""
    own_seconds = _PAUSES_SECONDS[min(attempt, len(_PAUSES_SECONDS)) - 1]
    asked_seconds = retry_after_seconds(error) if isinstance(error, ApiException) else 0.0
    return min(max(own_seconds, asked_seconds), _LONGEST_PAUSE_SECONDS)


# --- Jobs and ConfigMaps, for usage rollups -------------------------------------------------------
#
# Jobs go through the interface for custom objects as JSON, as Leases and Events do.
# `rollup_jobs.py` has their manifest.


_JOBS = ("batch", "v1")
_GONE = Reason.ROLLUPS_UNSEEN


class JobCalls:
    """The calls of `KubernetesClient` for Jobs and ConfigMaps; it sets these fields."""

    _objects: client.CustomObjectsApi
    _core: CoreObjects
    _transport: Transport

    def list_jobs(self, namespace: str, *, selector: str) -> list[JsonObject]:
        found = self._transport.read(
            self._objects.list_namespaced_custom_object,
            *(*_JOBS, namespace, "jobs"),
            label_selector=selector,
            what=f"list the Jobs {selector} in {namespace}",
            reason=_GONE,
        )
        return list(found.get("items") or [])

    def create_job(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        return self._transport.write(
            self._objects.create_namespaced_custom_object,
            *(*_JOBS, namespace, "jobs"),
            body=body,
            what=f"create Job {namespace}/{body['metadata']['name']}",
            reason=_GONE,
        )

    def delete_job(self, namespace: str, name: str, *, uid: str) -> None:
        with contextlib.suppress(NotFound):  # gone already
            self._transport.write(
                self._objects.delete_namespaced_custom_object,
                *(*_JOBS, namespace, "jobs", name),
                body={"propagationPolicy": "Background", "preconditions": {"uid": uid}},
                what=f"delete Job {namespace}/{name}",
                reason=_GONE,
            )

    def read_config_map(self, namespace: str, name: str) -> JsonObject | None:
        try:
            return self._transport.read(
                self._core.read,
                namespace,
                "configmaps",
                name,
                what=f"read ConfigMap {namespace}/{name}",
                reason=_GONE,
            )
        except NotFound:
            return None

    def write_config_map(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        name = str(body["metadata"]["name"])
        what = f"write ConfigMap {namespace}/{name}"
        if "resourceVersion" in body["metadata"]:
            return self._transport.write(
                self._core.replace,
                namespace,
                "configmaps",
                name,
                body=body,
                what=what,
                reason=_GONE,
            )
        return self._transport.write(
            self._core.create, namespace, "configmaps", body=body, what=what, reason=_GONE
        )


# --- Deployments and PodDisruptionBudgets, for forwarders -----------------------------------------
#
# They are written by server-side apply: what somebody else adds, such as an annotation, stays.
# `forwarders.py` has their manifests.


_UNAPPLIED = Reason.FORWARDERS_MISSING
_APPLY = "application/apply-patch+yaml"
_FIELD_MANAGER = "tidegate"


class ManagedCalls:
    """The calls of `KubernetesClient` for forwarders; it sets these fields."""

    _objects: client.CustomObjectsApi
    _transport: Transport

    def read_managed(self, kind: ResourceKind, namespace: str, name: str) -> JsonObject | None:
        try:
            return self._transport.read(
                self._objects.get_namespaced_custom_object,
                *(kind.group, kind.version, namespace, kind.plural, name),
                what=f"read {kind.kind} {namespace}/{name}",
                reason=_UNAPPLIED,
            )
        except NotFound:
            return None

    def apply_managed(self, kind: ResourceKind, body: Mapping[str, Any]) -> JsonObject:
        namespace, name = str(body["metadata"]["namespace"]), str(body["metadata"]["name"])
        return self._transport.write(
            self._objects.patch_namespaced_custom_object,
            *(kind.group, kind.version, namespace, kind.plural, name),
            body=dict(body),
            field_manager=_FIELD_MANAGER,
            force=True,
            field_validation="Strict",
            _content_type=_APPLY,
            what=f"apply {kind.kind} {namespace}/{name}",
            reason=_UNAPPLIED,
        )

    def delete_managed(self, kind: ResourceKind, namespace: str, name: str, *, uid: str) -> None:
        with contextlib.suppress(NotFound):  # gone already
            self._transport.write(
                self._objects.delete_namespaced_custom_object,
                *(kind.group, kind.version, namespace, kind.plural, name),
                body={"propagationPolicy": "Foreground", "preconditions": {"uid": uid}},
                what=f"delete {kind.kind} {namespace}/{name}",
                reason=_UNAPPLIED,
            )


# --- Events and Leases as JSON --------------------------------------------------------------------
#
# Kubernetes requires its MicroTime with exactly six digits and a Z; a time of whole seconds without
# them is refused.


REPORTING_CONTROLLER = "tidegate.io/operator"

_LONGEST_NAME_STEM = 200  # with a dot and 16 digits still a valid object name


def micro_time(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes' MicroTime."""
    return rfc3339(seconds, "microseconds")


def event_body(event: Event, *, reporting_instance: str, now: float) -> JsonObject:
    """`event` as an object of events.k8s.io/v1; kubectl shows it as it shows those of core/v1."""
    about = event.regarding
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{about.name[:_LONGEST_NAME_STEM]}.{secrets.token_hex(8)}",
            "namespace": about.namespace,
            **({"annotations": {PASS_ANNOTATION: event.pass_id}} if event.pass_id else {}),
        },
        "regarding": {
            "apiVersion": about.kind.api_version,
            "kind": about.kind.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "eventTime": micro_time(now),
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": reporting_instance,
        "action": "Reconcile",
        "type": event.type,
        "reason": event.reason,
        "note": event.note,
    }


def lease_body(lease: LeaseRecord) -> JsonObject:
    """`lease` as a Lease of coordination.k8s.io/v1.

    It has the resource version, if there is one, for compare-and-set.
    """
    metadata: JsonObject = {"name": lease.name, "namespace": lease.namespace}
    if lease.labels:
        metadata["labels"] = dict(lease.labels)
    if lease.resource_version:
        metadata["resourceVersion"] = lease.resource_version
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": lease.duration_seconds,
            "leaseTransitions": lease.transitions,
            "acquireTime": micro_time(lease.acquired_at),
            "renewTime": micro_time(lease.renewed_at),
        },
    }


def lease_record(body: JsonObject) -> LeaseRecord:
    """The Lease in `body`; missing fields are "", 0 or the epoch."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    return LeaseRecord(
        namespace=metadata["namespace"],
        name=metadata["name"],
        holder=spec.get("holderIdentity") or "",
        duration_seconds=spec.get("leaseDurationSeconds") or 0,
        transitions=spec.get("leaseTransitions") or 0,
        acquired_at=_seconds(spec.get("acquireTime")),
        renewed_at=_seconds(spec.get("renewTime")),
        resource_version=metadata["resourceVersion"],
        labels=metadata.get("labels") or {},
    )


def _seconds(micro_time_text: str | None) -> float:
    return datetime.fromisoformat(micro_time_text).timestamp() if micro_time_text else 0.0


CHUNK_SIZE = 500
LIST_TIMEOUT_SECONDS = 60.0

_EVENTS = ("events.k8s.io", "v1")
_LEASES = ("coordination.k8s.io", "v1")
_FINALIZER_ATTEMPTS = 4
# The reason for an object that is gone and for a partial list: the cache lacks custom resources.
_NOT_AS_LISTED = Reason.LIST_INCOMPLETE
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"


def _labels(found: JsonObject) -> Mapping[str, str]:
    return dict(found["metadata"].get("labels") or {})


class KubernetesClient(JobCalls, ManagedCalls):
    """Implements `api.Kubernetes`, for several threads; `identity` names this process in Events."""

    def __init__(
        self,
        api_client: client.ApiClient,
        identity: str,
        *,
        transport: Transport | None = None,
        chunk_size: int = CHUNK_SIZE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        # The interface for custom objects serves every named API group, so Leases and Events go
        # through it as JSON too: the typed models write a whole second without its microseconds,
        # which the server refuses.
        self._objects = client.CustomObjectsApi(api_client)
        self._core = CoreObjects(api_client)
        self._api_client = api_client
        self._identity = identity
        self._transport = transport or Transport()
        self._lease_transport = Transport(timeouts=LEASE_CALL_SECONDS, read_attempts=1)
        self._chunk_size = chunk_size
        self._monotonic = monotonic

    def close(self) -> None:
        """Close its connections; a call under way in another thread may fail."""
        self._api_client.close()

    def list_all(self, kind: ResourceKind, namespaces: Sequence[str] = ()) -> Listing:
        deadline = self._monotonic() + LIST_TIMEOUT_SECONDS
        try:
            pages = self._pages(kind, namespaces or [None], deadline=deadline)
        except NotFound as missing:
            raise NotFound(
                _NOT_AS_LISTED,
                f"Kubernetes does not serve {kind.plural} of {kind.api_version}. Install the "
                "custom resources (`kubectl apply --server-side -f crds/`); until then Tidegate "
                "changes nothing.",
            ) from missing
        items = tuple(item for page in pages for item in page["items"])
        return Listing(items, resource_version=pages[0]["metadata"]["resourceVersion"])

    def get(self, ref: ObjectRef) -> JsonObject:
        found = self._transport.read(
            self._objects.get_namespaced_custom_object,
            *_address(ref),
            what=f"read {ref}",
            reason=_NOT_AS_LISTED,
        )
        if found["metadata"]["uid"] != ref.uid:
            raise NotFound(_NOT_AS_LISTED, f"{ref} was deleted; another object has taken its name.")
        return found

    def patch_status(
        self, ref: ObjectRef, patch: Mapping[str, Any], *, resource_version: str
    ) -> JsonObject:
        body = {"metadata": {"uid": ref.uid, "resourceVersion": resource_version}, "status": patch}
        return self._transport.write(
            self._objects.patch_namespaced_custom_object_status,
            *_address(ref),
            body=body,
            _content_type=_MERGE_PATCH,
            # A server with older CRDs drops what it does not know; by default it would also send a
            # warning header for every such field of every member, and Python reads no answer of
            # more than 100 headers. The status writer notices what was dropped.
            field_validation="Ignore",
            what=f"write the status of {ref}",
            reason=_NOT_AS_LISTED,
        )

    def create(self, kind: ResourceKind, obj: Mapping[str, Any]) -> JsonObject:
        metadata = obj["metadata"]
        return self._transport.write(
            self._objects.create_namespaced_custom_object,
            kind.group,
            kind.version,
            metadata["namespace"],
            kind.plural,
            body=dict(obj),
            field_validation="Strict",
            what=f"create {kind.kind} {metadata['namespace']}/{metadata['name']}",
            reason=_NOT_AS_LISTED,
        )

    def annotate(self, ref: ObjectRef, name: str, value: str | None) -> JsonObject:
        return self._transport.write(
            self._objects.patch_namespaced_custom_object,
            *_address(ref),
            # with the uid of another object the server answers 422
            body={"metadata": {"uid": ref.uid, "annotations": {name: value}}},
            _content_type=_MERGE_PATCH,
            what=f"annotate {ref}",
            reason=_NOT_AS_LISTED,
        )

    def add_finalizer(self, ref: ObjectRef, finalizer: str) -> JsonObject:
        def addition(metadata: JsonObject) -> JsonObject | None:
            present = metadata.get("finalizers") or []
            if finalizer in present or "deletionTimestamp" in metadata:
                return None
            if not present:
                return {"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}
            return {"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}

        return self._change_finalizers(ref, addition)

    def remove_finalizer(self, ref: ObjectRef, finalizer: str) -> None:
        def removal(metadata: JsonObject) -> JsonObject | None:
            present = metadata.get("finalizers") or []
            if finalizer not in present:
                return None
            return {"op": "remove", "path": f"/metadata/finalizers/{present.index(finalizer)}"}

        with contextlib.suppress(NotFound):  # gone already, as it should be
            self._change_finalizers(ref, removal)

    def read_secret(self, namespace: str, name: str) -> Secret:
        found = self._transport.read(
            self._core.read,
            namespace,
            "secrets",
            name,
            what=f"read Secret {namespace}/{name}",
            reason=Reason.SECRET_UNREADABLE,
        )
        return Secret(
            namespace,
            name,
            {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()},
            _labels(found),
        )

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        what = f"read the labels of namespace {name}"
        reason = Reason.NAMESPACES_UNREAD
        return _labels(
            self._transport.read(self._core.read_namespace, name, what=what, reason=reason)
        )

    def claim_labels(self, namespace: str, name: str) -> Mapping[str, str]:
        claim = self._transport.read(
            self._core.read,
            namespace,
            "persistentvolumeclaims",
            name,
            what=f"read PersistentVolumeClaim {namespace}/{name}",
            reason=Reason.CLAIM_NOT_ALLOWED,
        )
        return _labels(claim)

    def create_event(self, event: Event) -> None:
        self._transport.write(
            self._objects.create_namespaced_custom_object,
            *(*_EVENTS, event.regarding.namespace, "events"),
            body=event_body(event, reporting_instance=self._identity, now=time.time()),
            what=f"post the event {event.reason} for {event.regarding}",
            reason=_NOT_AS_LISTED,
        )

    def read_lease(self, namespace: str, name: str) -> LeaseRecord | None:
        try:
            found = self._lease_transport.read(
                self._objects.get_namespaced_custom_object,
                *(*_LEASES, namespace, "leases", name),
                what=f"read Lease {namespace}/{name}",
                reason=_NOT_AS_LISTED,
            )
        except NotFound:
            return None
        return lease_record(found)

    def create_lease(self, lease: LeaseRecord) -> LeaseRecord:
        made = self._lease_transport.write(
            self._objects.create_namespaced_custom_object,
            *(*_LEASES, lease.namespace, "leases"),
            body=lease_body(lease),
            what=f"create Lease {lease.namespace}/{lease.name}",
            reason=_NOT_AS_LISTED,
        )
        return lease_record(made)

    def replace_lease(self, lease: LeaseRecord) -> LeaseRecord:
        try:
            replaced = self._lease_transport.write(
                self._objects.replace_namespaced_custom_object,
                *(*_LEASES, lease.namespace, "leases", lease.name),
                body=lease_body(lease),
                what=f"replace Lease {lease.namespace}/{lease.name}",
                reason=_NOT_AS_LISTED,
            )
        except NotFound as gone:
            raise Conflict(gone.what) from gone
        return lease_record(replaced)

    def list_leases(self, namespace: str, *, selector: str) -> list[LeaseRecord]:
        found = self._lease_transport.read(
            self._objects.list_namespaced_custom_object,
            *(*_LEASES, namespace, "leases"),
            label_selector=selector,
            what=f"list the Leases {selector} in {namespace}",
            reason=_NOT_AS_LISTED,
        )
        return [lease_record(body) for body in found.get("items") or []]

    def delete_lease(self, lease: LeaseRecord) -> None:
        with contextlib.suppress(NotFound):  # gone already
            self._lease_transport.write(
                self._objects.delete_namespaced_custom_object,
                *(*_LEASES, lease.namespace, "leases", lease.name),
                body={"preconditions": {"resourceVersion": lease.resource_version}},
                what=f"delete Lease {lease.namespace}/{lease.name}",
                reason=_NOT_AS_LISTED,
            )

    def _pages(
        self, kind: ResourceKind, namespaces: Sequence[str | None], *, deadline: float
    ) -> list[JsonObject]:
        """All pages of all `namespaces` (None = the whole cluster); none begins late."""
        pages: list[JsonObject] = []
        rest: list[tuple[str | None, str | None]] = [(one, None) for one in reversed(namespaces)]
        while rest:
            if pages and self._monotonic() > deadline:
                raise Incomplete(
                    _NOT_AS_LISTED,
                    f"{_unfinished(kind, len(pages))} The list is not used.",
                    consequence="it is read again.",
                )
            namespace, position = rest.pop()
            pages.append(self._page(kind, namespace, position=position))
            if position := pages[-1]["metadata"].get("continue"):
                rest.append((namespace, position))
        return pages

    def _page(
        self, kind: ResourceKind, namespace: str | None, *, position: str | None
    ) -> JsonObject:
        parameters: dict[str, Any] = {"limit": self._chunk_size}
        if position is not None:
            parameters["_continue"] = position
        call, place = (
            self._objects.list_cluster_custom_object,
            [kind.group, kind.version, kind.plural],
        )
        if namespace is not None:
            call, place = (
                self._objects.list_namespaced_custom_object,
                [kind.group, kind.version, namespace, kind.plural],
            )
        return self._transport.read(
            call,
            *place,
            **parameters,
            what=f"list {kind.plural}.{kind.group}",
            reason=_NOT_AS_LISTED,
        )

    def _change_finalizers(
        self, ref: ObjectRef, change: Callable[[JsonObject], JsonObject | None]
    ) -> JsonObject:
        """Apply the operation that `change` makes of the metadata; None = nothing to do.

        It is not applied if the finalizers changed meanwhile.
        """

        def read_and_change() -> JsonObject:
            found = self.get(ref)
            operation = change(found["metadata"])
            if operation is None:
                return found
            unchanged = {
                "op": "test",
                "path": "/metadata/finalizers",
                "value": found["metadata"].get("finalizers"),
            }
            return self._patch_json(
                ref,
                [{"op": "test", "path": "/metadata/uid", "value": ref.uid}, unchanged, operation],
            )

        # A failed test comes back as 422, just as a finalizer that the server does not like:
        # reading again shows which.
        return retry(
            read_and_change,
            attempts=_FINALIZER_ATTEMPTS,
            is_worth_repeating=lambda error: isinstance(error, InvalidResource | Conflict),
        )

    def _patch_json(self, ref: ObjectRef, operations: list[JsonObject]) -> JsonObject:
        return self._transport.write(
            self._objects.patch_namespaced_custom_object,
            *_address(ref),
            body=operations,
            _content_type=_JSON_PATCH,
            what=f"change the finalizers of {ref}",
            reason=_NOT_AS_LISTED,
        )


def _address(ref: ObjectRef) -> tuple[str, str, str, str, str]:
    return ref.kind.group, ref.kind.version, ref.namespace, ref.kind.plural, ref.name


def _unfinished(kind: ResourceKind, page_count: int) -> str:
    return (
        f"Kubernetes had sent {page_count} pages of {kind.plural} after "
        f"{LIST_TIMEOUT_SECONDS:g} s and had not come to the end."
    )
