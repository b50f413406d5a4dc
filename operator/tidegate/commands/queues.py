"""`tidegate queues`: the DelayQueues of a cluster, and what to do about those that need attention.

All of it is the operator's last word in their statuses, beside what their specs want. Kafka is not
asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.options import PolicyOptions
from tidegate.commands.output import Column, Document, OutputFormat, Page, Sheet, publish
from tidegate.errors import InvalidResource, NotFound, Unauthorized
from tidegate.kube.api import DELAY_QUEUES, DEPLOYMENTS, JsonObject
from tidegate_logic.reasons import Reason
from tidegate_logic.words import UNKNOWN, age_words, counted

if TYPE_CHECKING:
    from tidegate.kube.api import Kubernetes

_FROM_THE_TOP = "\x1b[H\x1b[J"
_TURN_ON = (
    "To turn delay queues on, install the chart with delayQueues.enabled=true, or apply "
    "crds/tidegate.io_delayqueues.yaml and start the operator with --forwarder-image. "
    "See docs/delay-queues.md."
)


@options.command
def queues(
    around: CommandContext,
    *,
    queue: Annotated[
        str | None,
        typer.Argument(metavar="[NAMESPACE/]QUEUE", help="DelayQueue to show in detail."),
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.KubeContext = None,
    as_user: options.AsUser = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of the queues."),
    ] = None,
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "--all-namespaces", "-A", help="All namespaces, the default without --namespace."
        ),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Update until Ctrl-C.")] = False,
    interval: options.Interval = 5,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show delay queues.

    Lists every DelayQueue with the messages that wait, how late the oldest is, and the forwarders
    available out of those wanted. STATUS is Ready, or the reason why it is not. With a name, it
    shows each delay and each forwarder, and what to do about every condition that needs attention.

    All data comes from Kubernetes: the operator updates it about twice a minute. Nothing is
    written. With --watch and --output json, every update is one line.

    Exit code 0 means that the queues were shown, whatever their state, or that there are none. It
    is 1 if the named queue does not exist, or if the cluster does not serve DelayQueues.
    """
    asked = PolicyOptions(policy=queue, namespace=namespace, all_namespaces=all_namespaces)
    kubernetes = around.open_kubernetes(kubeconfig, context, as_user)
    in_place = around.out.isatty() and output is OutputFormat.TABLE and watch
    with suppress(KeyboardInterrupt):
        while True:
            found = _read(kubernetes, asked)
            document: Document = {"queues": [_document(one) for one in found]}
            if output is OutputFormat.JSON and watch:
                around.out.write(json.dumps(document, ensure_ascii=False) + "\n")
            else:
                if in_place:
                    around.out.write(_FROM_THE_TOP)
                publish(around.out, output, document, show=partial(_show, found, asked))
            around.out.flush()
            if not watch or around.reader_has_left:
                return
            around.wait_seconds(interval)


# --- what there is --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Queue:
    """One queue as the API server has it. `available` forwarders None = not known."""

    raw: JsonObject
    available: int | None

    @property
    def namespace(self) -> str:
        return str(self.raw["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.raw.get("spec") or {}

    @property
    def status(self) -> Mapping[str, Any]:
        return self.raw.get("status") or {}

    @property
    def policy(self) -> str:
        """The policy, with its namespace where that is another one."""
        reference = self.spec.get("policyRef") or {}
        place, name = reference.get("namespace"), str(reference.get("name", ""))
        return name if place in (None, self.namespace) else f"{place}/{name}"

    @property
    def prefix(self) -> str:
        """First part of the names of its topics."""
        known = self.status.get("topicPrefix") or self.spec.get("topicPrefix")
        return str(known or f"{self.namespace}.{self.name}")

    @property
    def wanted(self) -> int:
        """Forwarders that the spec wants."""
        return int((self.spec.get("forwarders") or {}).get("replicas") or 2)

    @property
    def waiting(self) -> int | None:
        return (self.status.get("summary") or {}).get("waiting")

    @property
    def late_seconds(self) -> int | None:
        return (self.status.get("summary") or {}).get("oldestLateSeconds")

    @property
    def dead(self) -> int | None:
        return self.status.get("dead")

    @property
    def delays(self) -> Sequence[Mapping[str, Any]]:
        return self.status.get("delays") or ()

    @property
    def per_second(self) -> int | None:
        """Messages sent on per second, of all delays; None = not known of every one."""
        rates = [delay.get("perSecond") for delay in self.delays]
        return None if not rates or None in rates else sum(filter(None, rates))

    @property
    def conditions(self) -> Sequence[Mapping[str, Any]]:
        return self.status.get("conditions") or ()

    @property
    def word(self) -> str:
        """Ready, or the reason why it is not."""
        ready = next((one for one in self.conditions if one["type"] == "Ready"), None)
        if ready is None:
            return _NOT_REPORTED
        return "Ready" if ready["status"] == "True" else str(ready["reason"])


def _read(kubernetes: Kubernetes, asked: PolicyOptions) -> list[_Queue]:
    """The queues asked for, by name. Raises NotFound if there is no such queue, or no CRD."""
    try:
        listing = kubernetes.list_all(DELAY_QUEUES, (asked.place,) if asked.place else ())
    except NotFound as error:
        raise NotFound(
            Reason.CRDS_MISSING, f"This cluster does not serve DelayQueues. {_TURN_ON}"
        ) from error
    except Unauthorized as error:
        raise Unauthorized(
            error.what,
            advice="Your own login needs the right to list delayqueues; --namespace needs it in "
            "one namespace only.",
        ) from error
    wanted = [raw for raw in listing if _is_named(raw, asked.name)]
    if asked.name is not None:
        _require_one(wanted, asked)
    found = []
    may_read = True
    for raw in sorted(wanted, key=_key):
        available = None
        if may_read:
            try:
                available = _available(kubernetes, raw)
            except Unauthorized:  # people who may see queues need not see Deployments
                may_read = False
        found.append(_Queue(raw, available))
    return found


def _key(raw: JsonObject) -> tuple[str, str]:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _is_named(raw: JsonObject, name: str | None) -> bool:
    return name in (None, raw["metadata"]["name"], "/".join(_key(raw)))


def _require_one(found: Sequence[JsonObject], asked: PolicyOptions) -> None:
    where = f"in namespace {asked.place}" if asked.place else "in the cluster"
    if not found:
        raise NotFound(
            Reason.INVALID_SPEC,
            f"There is no DelayQueue {asked.name} {where}. `tidegate queues` lists all of them.",
        )
    if len(found) > 1:
        known = ", ".join(sorted("/".join(_key(raw)) for raw in found))
        raise InvalidResource(
            f"There are several DelayQueues {asked.name} ({known}). Name one as NAMESPACE/NAME."
        )


def _available(kubernetes: Kubernetes, raw: JsonObject) -> int:
    from tidegate.kube.forwarders import forwarders_name
    from tidegate.kube.rollup_jobs import is_owned

    namespace, name = _key(raw)
    found = kubernetes.read_managed(DEPLOYMENTS, namespace, forwarders_name(name))
    if found is None or not is_owned(found, raw["metadata"]["uid"]):
        return 0
    return int((found.get("status") or {}).get("availableReplicas") or 0)


# --- for people -----------------------------------------------------------------------------------


def _show(found: Sequence[_Queue], asked: PolicyOptions, page: Page) -> None:
    if asked.name is not None:
        _show_one(found[0], page)
        return
    if not found:
        where = f"in namespace {asked.place}" if asked.place else "in this cluster"
        page.say(f"There are no DelayQueues {where}.")
        return
    page.sheet(_sheet(found, with_namespace=asked.place is None))


def _sheet(found: Iterable[_Queue], *, with_namespace: bool) -> Sheet:
    columns = (
        *((Column("Namespace"),) if with_namespace else ()),
        *(Column(title) for title in ("Name", "Policy", "Guarantee")),
        *(Column(title, right=True) for title in ("Waiting", "Late", "Rate")),
        *(Column("Forwarders"), Column("Dead", right=True), Column("Status")),
    )
    return Sheet(columns, [(*((one.namespace,) * with_namespace), *_cells(one)) for one in found])


def _cells(one: _Queue) -> Sequence[str]:
    return (
        one.name,
        one.policy,
        str(one.spec.get("guarantee", "")),
        _number(one.waiting),
        _age(one.late_seconds),
        _rate(one.per_second),
        f"{_number(one.available)}/{one.wanted}",
        _number(one.dead),
        one.word,
    )


def _number(number: int | None) -> str:
    return "?" if number is None else str(number)


def _age(seconds: int | None) -> str:
    return "?" if seconds is None else age_words(seconds)


def _rate(per_second: int | None) -> str:
    return "?" if per_second is None else f"{per_second}/s"


def _show_one(one: _Queue, page: Page) -> None:
    page.say(f"{one.key}  {one.word}", "bold")
    page.say(f"policy {one.policy}, {one.spec.get('guarantee')}, topics {one.prefix}.*")
    page.say(_total_words(one))
    if one.delays:
        page.say()
        page.sheet(_delay_sheet(one.delays))
    page.say()
    available = UNKNOWN if one.available is None else str(one.available)
    page.say(f"Forwarders available: {available} of {one.wanted}")
    page.sheet(_forwarder_sheet(one.status.get("forwarders") or ()))
    for condition in _that_need_attention(one):
        page.say()
        page.warn(f"{condition['type']} is {condition['status']}, {condition['reason']}")
        page.say(f"  {condition['message']}")
        if fix := _fix(condition["reason"], one):
            page.say(f"  Fix: {fix}")


def _total_words(one: _Queue) -> str:
    waiting = "an unknown number of messages" if one.waiting is None else _messages(one.waiting)
    dead = "an unknown number" if one.dead is None else str(one.dead)
    late = {None: "", 0: ", none of them late"}.get(
        one.late_seconds, f", the oldest {age_words(one.late_seconds or 0)} late"
    )
    return f"{waiting} waiting{late}; {dead} in {one.prefix}.dead"


def _messages(number: int) -> str:
    return counted(number, "message")


def _delay_sheet(delays: Iterable[Mapping[str, Any]]) -> Sheet:
    titles = ("Delay", "Topics", "Waiting", "Late", "Rate")
    rows = [
        (
            f"{delay['seconds']} s",
            str(delay["topics"]),
            _number(delay.get("waiting")),
            _age(delay.get("oldestLateSeconds")),
            _rate(delay.get("perSecond")),
        )
        for delay in delays
    ]
    return Sheet(tuple(Column(title, right=True) for title in titles), rows)


def _forwarder_sheet(forwarders: Iterable[Mapping[str, Any]]) -> Sheet:
    columns = (Column("Forwarder"), Column("Topics", right=True))
    return Sheet(columns, [(str(one["name"]), str(one["topics"])) for one in forwarders])


def _that_need_attention(one: _Queue) -> Iterator[Mapping[str, Any]]:
    """Conditions that are not fine, Ready first; one made here where nobody has reported any."""
    if not one.conditions:
        yield {
            "type": "Ready",
            "status": "Unknown",
            "reason": _NOT_REPORTED,
            "message": "No operator has reported on this queue.",
        }
    for condition in one.conditions:
        is_fine = (
            condition["status"] == "True"
            if condition["type"] == "Ready"
            # that says the same as Ready
            else condition["type"] == "Stalled"
            # True is what needs attention; one that is False may say why it cannot be True
            or (condition["status"] == "False" and condition["reason"] == Reason.FORWARDING.value)
        )
        if not is_fine:
            yield condition


_NOT_REPORTED = "NotReported"
# where the message of the condition leaves it open; {key}s are filled in `_fix`
_FIXES = {
    _NOT_REPORTED: f"check that the operator runs and serves delay queues. {_TURN_ON}",
    Reason.FORWARDERS_MISSING.value: "kubectl describe deployment {name}-forwarders -n {namespace}",
    Reason.STARTING.value: "wait for two minutes; if it stays, kubectl describe deployment "
    "{name}-forwarders -n {namespace}",
    Reason.FORWARDING_FAILS.value: "kubectl logs deployment/{name}-forwarders -n {namespace}",
    Reason.BROKERS_UNREACHABLE.value: "tidegate doctor {policy_key} shows what the brokers answer.",
    Reason.DEAD_LETTERS.value: "read the header tidegate-reason in {prefix}.dead, correct "
    "spec.target or the producer, and produce the messages again.",
    Reason.BROKERS_OVER_LIMIT.value: "nothing to do; tidegate top {policy_key} shows the brokers.",
    Reason.SENDING_LATE.value: "nothing to do.",
}


def _fix(reason: str, one: _Queue) -> str:
    policy_key = one.policy if "/" in one.policy else f"{one.namespace}/{one.policy}"
    return _FIXES.get(reason, "").format(
        name=one.name, namespace=one.namespace, prefix=one.prefix, policy_key=policy_key
    )


# --- for programs ---------------------------------------------------------------------------------


def _document(one: _Queue) -> Document:
    """Everything; null is unknown."""
    return {
        "namespace": one.namespace,
        "name": one.name,
        "policy": one.policy,
        "guarantee": one.spec.get("guarantee"),
        "topicPrefix": one.prefix,
        "status": one.word,
        "waiting": one.waiting,
        "oldestLateSeconds": one.late_seconds,
        "perSecond": one.per_second,
        "dead": one.dead,
        "forwarders": {
            "available": one.available,
            "wanted": one.wanted,
            "members": list(one.status.get("forwarders") or ()),
        },
        "delays": list(one.delays),
        "conditions": list(one.conditions),
    }
