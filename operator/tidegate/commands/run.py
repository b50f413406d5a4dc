"""`tidegate run`: the operator as a process. This module only fills in the settings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.errors import UserActionRequired
from tidegate.settings import (
    ForwarderOffer,
    LogFormat,
    LogLevel,
    PodToken,
    RollupOffer,
    SecurityContexts,
    Settings,
)
from tidegate_logic.reasons import Reason

_DEFAULTS = Settings(identity="")
OWN_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@options.command
def run(
    _: CommandContext,
    *,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace to watch; may be repeated. Unset: only that of the Leases.",
        ),
    ] = None,
    all_namespaces: Annotated[
        bool,
        typer.Option("--all-namespaces", "-A", help="Watch all namespaces."),
    ] = False,
    lease_namespace: options.LeaseNamespace = None,
    kubeconfig: options.Kubeconfig = None,
    kube_context: options.KubeContext = None,
    liveness_port: Annotated[
        int,
        typer.Option(
            "--liveness-port", min=0, max=65535, help="Port of /healthz; 0 = any free port."
        ),
    ] = 8080,
    metrics_port: Annotated[
        int,
        typer.Option(
            "--metrics-port", min=0, max=65535, help="Port of /metrics; 0 = any free port."
        ),
    ] = 9095,
    listen_address: Annotated[
        str,
        typer.Option(
            "--listen-address",
            help="Address that both ports listen on; probes and Prometheus need the default.",
        ),
    ] = _DEFAULTS.listen_address,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Log as JSON lines or as readable text.")
    ] = _DEFAULTS.log_format,
    log_level: Annotated[
        LogLevel,
        typer.Option(
            "--log-level",
            case_sensitive=False,
            help="Lowest level to log.",
        ),
    ] = _DEFAULTS.log_level,
    audit_file: Annotated[
        str,
        typer.Option(
            "--audit-file",
            envvar="TIDEGATE_AUDIT_FILE",
            metavar="FILE|-",
            help="File to append the audit trail to, as JSON lines; - is standard output (log "
            "lines go to standard error).",
        ),
    ] = _DEFAULTS.audit_file,
    otlp_endpoint: Annotated[
        str,
        typer.Option(
            "--otlp-endpoint",
            envvar="TIDEGATE_OTLP_ENDPOINT",
            metavar="URL",
            help="OTLP collector that receives spans of every pass over HTTP, such as "
            "http://collector:4318. Requires the extra tidegate[tracing].",
        ),
    ] = _DEFAULTS.otlp_endpoint,
    bounds: options.BoundsOptions,
    rollup_image: Annotated[
        str | None,
        typer.Option(
            "--rollup-image",
            metavar="IMAGE",
            help="Image of rollup Jobs. Unset: no Jobs are created.",
        ),
    ] = None,
    rollup_service_account: Annotated[
        str,
        typer.Option(
            "--rollup-service-account",
            metavar="NAME",
            help="ServiceAccount of rollup Jobs, in each policy's namespace.",
        ),
    ] = "default",
    rollup_pull_secret: Annotated[
        list[str] | None,
        typer.Option(
            "--rollup-pull-secret",
            metavar="NAME",
            help="Image pull Secret of rollup Jobs; may be repeated.",
        ),
    ] = None,
    rollup_pod_security_context: Annotated[
        str | None,
        typer.Option(
            "--rollup-pod-security-context",
            metavar="JSON",
            help="securityContext of their Pods instead of the default (user and group 65532).",
        ),
    ] = None,
    rollup_security_context: Annotated[
        str | None,
        typer.Option(
            "--rollup-security-context",
            metavar="JSON",
            help="securityContext of their containers instead of the default.",
        ),
    ] = None,
    forwarder_image: Annotated[
        str | None,
        typer.Option(
            "--forwarder-image",
            metavar="IMAGE",
            help="Image of the forwarders of DelayQueues. Unset: DelayQueues are not served.",
        ),
    ] = None,
    forwarder_pull_secret: Annotated[
        list[str] | None,
        typer.Option(
            "--forwarder-pull-secret",
            metavar="NAME",
            help="Image pull Secret of forwarders; may be repeated.",
        ),
    ] = None,
    forwarder_token: Annotated[
        list[str] | None,
        typer.Option(
            "--forwarder-token",
            metavar="JSON",
            help="Token that queues of a namespace may name as accessTokenFile: an object with "
            "namespace, name, audience and expirationSeconds (3600); may be repeated.",
        ),
    ] = None,
    forwarder_pod_security_context: Annotated[
        str | None,
        typer.Option(
            "--forwarder-pod-security-context",
            metavar="JSON",
            help="securityContext of their Pods instead of the default (user and group 65532).",
        ),
    ] = None,
    forwarder_security_context: Annotated[
        str | None,
        typer.Option(
            "--forwarder-security-context",
            metavar="JSON",
            help="securityContext of their containers instead of the default.",
        ),
    ] = None,
) -> None:
    """Run the operator until SIGTERM or Ctrl-C.

    On either, it finishes the current batch and releases its Leases.
    """
    # kopf and the clients behind it take a second to import, which no other command should pay
    from tidegate import main

    own = lease_namespace or _namespace_of_the_pod()
    settings = Settings(
        lease_namespace=own,
        namespaces=_watched(own, namespace or (), everywhere=all_namespaces),
        kubeconfig=None if kubeconfig is None else str(kubeconfig),
        context=kube_context,
        liveness_port=liveness_port,
        metrics_port=metrics_port,
        listen_address=listen_address,
        log_format=log_format,
        log_level=log_level,
        audit_file=audit_file,
        otlp_endpoint=otlp_endpoint,
        bounds=bounds.given,
        rollups=None
        if not rollup_image
        else RollupOffer(
            image=rollup_image,
            service_account=rollup_service_account,
            pull_secrets=tuple(rollup_pull_secret or ()),
            security=_security("rollup", rollup_pod_security_context, rollup_security_context),
        ),
        forwarders=None
        if not forwarder_image
        else ForwarderOffer(
            image=forwarder_image,
            pull_secrets=tuple(forwarder_pull_secret or ()),
            security=_security(
                "forwarder", forwarder_pod_security_context, forwarder_security_context
            ),
            tokens=tuple(map(_token, forwarder_token or ())),
        ),
    )
    main.run(settings)


def _namespace_of_the_pod() -> str:
    try:
        return OWN_NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UserActionRequired(
            Reason.INVALID_SPEC,
            "The operator does not know its own namespace, where its Leases are: it is in no Pod "
            f"with a ServiceAccount's token ({OWN_NAMESPACE_FILE} cannot be read). Give "
            "--lease-namespace NAME, the same one to every replica.",
        ) from error


def _watched(own: str, named: Sequence[str], *, everywhere: bool) -> tuple[str, ...]:
    if everywhere and named:
        raise UserActionRequired(
            Reason.INVALID_SPEC,
            "--all-namespaces and --namespace exclude each other. Give one of the two.",
        )
    return () if everywhere else tuple(named) or (own,)


def _security(whose: str, pod: str | None, container: str | None) -> SecurityContexts:
    given = {
        name: _object(text, option=option)
        for name, text, option in (
            ("pod", pod, f"--{whose}-pod-security-context"),
            ("container", container, f"--{whose}-security-context"),
        )
        if text is not None
    }
    return SecurityContexts(**given)


def _token(text: str) -> PodToken:
    option = "--forwarder-token"
    read = _object(text, option=option, what='a token, such as \'{"namespace": "shop", ...}\'')
    match read:
        case {"namespace": str(namespace), "name": str(name), "audience": str(audience)}:
            seconds = read.get("expirationSeconds", 3600)
            if isinstance(seconds, int) and not isinstance(seconds, bool) and seconds >= 600:
                return PodToken(namespace, name, audience, seconds)
    raise UserActionRequired(
        Reason.INVALID_SPEC,
        f"{option} {text!r} needs namespace, name and audience as text, and expirationSeconds of "
        "at least 600, so the operator does not start.",
    )


def _object(
    text: str,
    *,
    option: str,
    what: str = "a securityContext as a Pod has it, such as '{\"runAsNonRoot\": true}'",
) -> Mapping[str, Any]:
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise UserActionRequired(
            Reason.INVALID_SPEC,
            f"{option} {text!r} is not a JSON object, so the operator does not start. Give {what}.",
        )
    return read
