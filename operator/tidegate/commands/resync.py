"""`tidegate resync`: end at once what another writer's changes began, by an annotation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Annotated, Any

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import stored_policy
from tidegate.commands.output import Document, ExitCode, OutputFormat, Page, publish
from tidegate.errors import InvalidResource, Unauthorized
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, ObjectRef
from tidegate_logic.quotas.contention import RESYNC, named_entity
from tidegate_logic.words import rfc3339


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A member that the operator leaves alone, as its tier's status says; `until` in UTC."""

    tier: str
    member: str
    until: str


@options.command
def resync(
    around: CommandContext,
    *,
    named: options.StoredPolicy,
    entity: Annotated[
        str | None,
        typer.Option(
            "--entity",
            "-e",
            metavar="ENTITY",
            help="Resync only this entity: user=NAME, client-id=NAME, or both as 'user=NAME, "
            "client-id=NAME'.",
        ),
    ] = None,
    dry_run: options.DryRunOption = options.DryRun.NONE,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Reapply quotas changed by another writer.

    The operator leaves a quota alone while another writer keeps changing it. This clears that list
    and compares every quota again immediately.

    Sets the annotation tidegate.io/resync on the policy, as kubectl could. The operator acts once
    on each new value, with its next pass, and posts the Event Resynced. The other writer is not
    stopped: if it continues, the quota is left alone again after two repairs.
    """
    value = rfc3339(around.now_ms() / 1000, "milliseconds")
    if entity is not None:
        value = f"{value} {entity.strip()}"
        if not named_entity(value):
            raise InvalidResource(
                f"--entity {entity!r} names no entity; nothing was asked. Name it as user=NAME, "
                f"client-id=NAME, or 'user=NAME, client-id=NAME', as the status does."
            )
    kubernetes, raw, tiers = stored_policy(around, named)
    ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, raw)
    command = (
        f"kubectl annotate bbp {ref.name} -n {ref.namespace} {quote(f'{RESYNC}={value}')} "
        f"--overwrite"
    )
    is_asked = dry_run is options.DryRun.NONE
    if is_asked:
        try:
            kubernetes.annotate(ref, RESYNC, value)
        except Unauthorized as error:
            raise Unauthorized(
                error.what,
                advice="Your own login needs the right to patch brokerbandwidthpolicies. "
                f"Someone who has it can run: {command}",
            ) from error
    _answer(around, raw, tiers, value=value, command=command, asked=is_asked, output=output)


def _answer(
    around: CommandContext,
    policy: Mapping[str, Any],
    tiers: Sequence[Mapping[str, Any]],
    *,
    value: str,
    command: str,
    asked: bool,
    output: OutputFormat,
) -> None:
    from tidegate.observe.declared import object_key

    alone, key = tuple(left_alone(tiers)), object_key(policy)
    namespace, _, name = key.partition("/")
    held = _held_words(policy)

    def show(page: Page) -> None:
        if asked:
            page.say(f"Asked policy {key} to resync ({RESYNC}={value}).", "bold")
            page.say("The operator does it with its next pass and posts the Event Resynced:")
            page.say(f"  kubectl events -n {namespace} --for bbp/{name}")
        else:
            page.say(f"Policy {key} would be asked to resync; nothing was. By hand:", "bold")
            page.say(f"  {command}")
        if held:
            page.warn(held)
        for one in alone:
            page.say(f"Left alone until {one.until}: {one.tier} / {one.member}")
        if not alone:
            page.say("No member of its tiers is left alone, by their statuses.")

    document: Document = {
        "policy": key,
        "asked": asked,
        "annotation": RESYNC,
        "value": value,
        "leftAlone": [
            {"tier": one.tier, "member": one.member, "until": one.until} for one in alone
        ],
        "warnings": [held] if held else [],
    }
    publish(around.out, output, document, show=show)
    around.exit_code = ExitCode.OK if asked else ExitCode.WOULD_CHANGE


def left_alone(tiers: Sequence[Mapping[str, Any]]) -> Iterator[LeftAlone]:
    """The members that the statuses of these tiers show as contended."""
    from tidegate.observe.declared import object_key

    for tier in tiers:
        for member in (tier.get("status") or {}).get("members") or ():
            if member.get("contendedUntil"):
                yield LeftAlone(object_key(tier), member["name"], member["contendedUntil"])


def _held_words(policy: Mapping[str, Any]) -> str:
    """Why the operator may not act at once; empty where nothing is known to keep it from it."""
    conditions = (policy.get("status") or {}).get("conditions") or ()
    ready = next((one for one in conditions if one.get("type") == "Ready"), None)
    if ready is None:
        return "no operator has reported on this policy yet, so there may be none to act on this"
    if ready.get("status") == "False" and ready.get("reason") != "Contended":
        return (
            f"the policy is not Ready ({ready.get('reason')}), and it may have to wait for the end "
            f"of that: {ready.get('message')}"
        )
    return ""
