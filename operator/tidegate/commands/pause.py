"""`tidegate pause`, `resume` and `confirm-removal`: what a person says to a policy by annotations.

Each is one annotation that kubectl can set as well; with `--dry-run=client -o yaml` the policy is
printed as it would be, for a repository.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Annotated, Any

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import stored_policy
from tidegate.commands.options import DryRun, DryRunOption, PolicyOptions
from tidegate.commands.output import ExitCode, OutputFormat, Page, publish
from tidegate.errors import InvalidResource, NotFound, Unauthorized
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, Kubernetes, ObjectRef
from tidegate_logic.quotas.plan import CONFIRM_REMOVAL, IF_INTENDED
from tidegate_logic.reasons import Reason


@options.command
def pause(
    around: CommandContext,
    *,
    named: options.StoredPolicy,
    dry_run: DryRunOption = DryRun.NONE,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Pause all quota changes until `tidegate resume`.

    Sets the annotation tidegate.io/paused. The operator then writes nothing to Kafka: contracts do
    not follow leaders, and nothing is throttled or restored, not even when the policy is deleted.
    """
    from tidegate.observe.declared import PAUSED

    change = _Change.of(around, named)
    change.annotate(PAUSED, "true", is_dry=dry_run is DryRun.CLIENT)
    change.publish(
        output,
        f"Policy {change.key} is paused: every quota stays as it is, whatever happens.",
        f"End it with: tidegate resume {change.key}",
    )


@options.command
def resume(
    around: CommandContext,
    *,
    named: options.StoredPolicy,
    dry_run: DryRunOption = DryRun.NONE,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Resume a policy paused by `tidegate pause`.

    Removes the annotation tidegate.io/paused. A policy with spec.suspend stays paused, which is an
    error here: change it in the policy's manifest.
    """
    from tidegate.observe.declared import PAUSED

    change = _Change.of(around, named)
    change.annotate(PAUSED, None, is_dry=dry_run is DryRun.CLIENT)
    change.publish(
        output,
        f"Policy {change.key} has no annotation {PAUSED} any more.",
        f"What the operator will write now: tidegate plan {change.key}",
    )
    if (change.policy.get("spec") or {}).get("suspend"):
        raise InvalidResource(
            f"Policy {change.key} is still paused by spec.suspend: true. Set it to false, or "
            "remove it, where the policy is kept."
        )


@options.command
def confirm_removal(
    around: CommandContext,
    *,
    named: options.StoredPolicy,
    yes: Annotated[
        bool, typer.Option("--yes", help="Confirm the removal. Without this, only show it.")
    ] = False,
    dry_run: DryRunOption = DryRun.NONE,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Approve a held bulk removal.

    A policy holds back a removal of too many quotas (RemovalHeld); this lets it restore them.

    Without --yes, it shows how many and exits with 2. With it, the annotation
    tidegate.io/confirm-removal gets the value that the operator's message names. The approval is
    valid once, for exactly those quotas, and has no effect if others have joined them.
    """
    change = _Change.of(around, named)
    message = _held_removal(change.policy)
    found = re.search(rf"{re.escape(CONFIRM_REMOVAL)}=(\S+)", message)
    if found is None:
        raise NotFound(
            Reason.REMOVAL_HELD,
            f"Policy {change.key} holds no removal, by its last status, so there is nothing to "
            f"confirm. What it would do: tidegate plan {change.key}",
        )
    is_dry = dry_run is DryRun.CLIENT or not yes
    change.annotate(CONFIRM_REMOVAL, found[1], is_dry=is_dry)
    change.publish(
        output,
        message.partition(f" {IF_INTENDED}")[0],
        "Confirmed, once."
        if not is_dry
        else f"To confirm: tidegate confirm-removal {change.key} --yes",
    )


@dataclass(slots=True)
class _Change:
    """One policy, and the annotation that it gets; `command` does the same by hand."""

    around: CommandContext
    kubernetes: Kubernetes
    policy: Mapping[str, Any]
    command: str = ""
    is_dry: bool = False

    @classmethod
    def of(cls, around: CommandContext, named: PolicyOptions) -> "_Change":
        kubernetes, raw, _ = stored_policy(around, named)
        return cls(around, kubernetes, raw)

    @property
    def key(self) -> str:
        from tidegate.observe.declared import object_key

        return object_key(self.policy)

    def annotate(self, name: str, value: str | None, *, is_dry: bool) -> None:
        """Set the annotation, or remove it; raises Unauthorized with the command for others."""
        ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, self.policy)
        said = quote(f"{name}={value}") if value is not None else f"{name}-"
        self.command = f"kubectl annotate bbp {ref.name} -n {ref.namespace} {said}"
        self.command += " --overwrite" if value is not None else ""
        self.is_dry = is_dry
        if is_dry:
            before = self.policy["metadata"].get("annotations") or {}
            after = {key: text for key, text in before.items() if key != name}
            after |= {} if value is None else {name: value}
            metadata = {**self.policy["metadata"], "annotations": after}
            self.policy = {**self.policy, "metadata": metadata}
            return
        try:
            self.policy = self.kubernetes.annotate(ref, name, value)
        except Unauthorized as error:
            raise Unauthorized(
                error.what,
                advice="Your own login needs the right to patch brokerbandwidthpolicies. "
                f"Someone who has it can run: {self.command}",
            ) from error

    def publish(self, output: OutputFormat, what: str, next_step: str) -> None:
        """Print the policy as it is now, or the sentences for people, and set the exit code."""

        def show(page: Page) -> None:
            page.say(what if not self.is_dry else f"Nothing was sent. {what}", "bold")
            page.say(next_step)
            if self.is_dry:
                page.say(f"By hand: {self.command}")

        publish(self.around.out, output, applicable(self.policy), show=show)
        self.around.exit_code = ExitCode.WOULD_CHANGE if self.is_dry else ExitCode.OK


_SERVERS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


def applicable(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The object without what only the server sets, so that it can be kept and applied."""
    kept = {name: value for name, value in stored.items() if name != "status"}
    metadata = {
        name: value
        for name, value in stored["metadata"].items()
        if name not in (*_SERVERS, "finalizers") and value != {}
    }
    return {**kept, "metadata": metadata}


def _held_removal(policy: Mapping[str, Any]) -> str:
    """The message of the condition that holds a removal; empty where none does."""
    conditions = (policy.get("status") or {}).get("conditions") or ()
    return next(
        (
            str(one.get("message"))
            for one in conditions
            if CONFIRM_REMOVAL in str(one.get("message"))
        ),
        "",
    )
