"""`tidegate override create`: a decision that ends by itself, as a QuotaOverride."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import PolicySource, find_policy, in_one_namespace
from tidegate.commands.options import DryRun, DryRunOption, PolicyOptions
from tidegate.commands.output import ExitCode, OutputFormat, Page, publish
from tidegate.errors import InvalidResource, NotFound, TidegateError, Unauthorized
from tidegate.kube.api import QUOTA_OVERRIDES, Kubernetes
from tidegate_logic.model import Entity, Member, RateForm, Tier
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Manage temporary overrides.",
)


@app.callback()
def _override() -> None:
    """Keep `create` a command of its own while it is the only one."""


@app.command("create", short_help="Create a temporary override.")
@options.command
def create(
    around: CommandContext,
    *,
    named: options.StoredPolicy,
    user: Annotated[str | None, typer.Option("--user", "-u", help="User of the member.")] = None,
    client_id: Annotated[
        str | None, typer.Option("--client-id", "-c", help="Client id of the member.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            metavar="L0|L1|L2|L3",
            help="Override all members of this level instead of one member.",
        ),
    ] = None,
    fetch: Annotated[
        str | None,
        typer.Option(
            "--fetch", metavar="RATE", help="Fetch rate in bytes per second, such as 40M."
        ),
    ] = None,
    produce: Annotated[
        str | None,
        typer.Option(
            "--produce", metavar="RATE", help="Produce rate in bytes per second, such as 40M."
        ),
    ] = None,
    form: Annotated[
        RateForm | None,
        typer.Option(
            "--form",
            metavar="perPartition|perBroker|total",
            help="What the rates apply to. Unset: as in the member's contract. "
            "Required for the rates of a level.",
        ),
    ] = None,
    exempt: Annotated[
        bool, typer.Option("--exempt", help="Exempt from throttling, without other rates.")
    ] = False,
    starts_at: Annotated[
        str | None,
        typer.Option(
            "--starts-at",
            metavar="TIME",
            help="When it begins, such as 2026-11-29T22:00:00Z. Unset: now.",
        ),
    ] = None,
    lasting: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="How long from then: 90m, 2h or 3d; at most 30 days from now, or 366 days for one "
            "that comes back.",
        ),
    ],
    recurrence: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--recurrence",
            metavar="FROM TO",
            help="Only from one time of day to another, such as 22:00 06:00.",
        ),
    ] = None,
    days: Annotated[
        str | None,
        typer.Option(
            "--days",
            metavar="Mon,Tue,...",
            help="Days on which the times of --recurrence begin. Unset: every day.",
        ),
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option(
            "--time-zone",
            metavar="ZONE",
            help="Time zone of --recurrence, such as Europe/Berlin. Unset: UTC.",
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Reason, for anyone who reads it later.")],
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the object. Unset: generated from user and time."),
    ] = None,
    dry_run: DryRunOption = DryRun.NONE,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Create a temporary override.

    A QuotaOverride gives one member or one level other rates, or exempts it from throttling, until
    it ends. Then the contract applies again automatically. One with --recurrence comes back every
    week; between its times, the contract applies.

    The member must be in one of the policy's tiers, with exactly this user and client id. With
    --dry-run=client -o yaml, the object is printed instead, to apply later: no cluster is needed if
    the policy is named and rates have their --form, and then the member is not checked.
    """
    from tidegate.resources.kinds import API_VERSION, parse_object

    is_dry = dry_run is DryRun.CLIENT
    rates = {way: rate for way, rate in (("fetch", fetch), ("produce", produce)) if rate}
    if exempt == bool(rates):
        raise InvalidResource(
            "Give either rates (--fetch, --produce) or --exempt, which keeps those of the contract."
        )
    span = _span(around.now_seconds(), starts_at, lasting, recurrence, days, time_zone)
    if level is not None and (user is not None or client_id is not None):
        raise InvalidResource("Give either a level, or a user or client id. Nothing was created.")
    target: dict[str, Any] = {"level": level}
    if level is None:
        if user is None and client_id is None:
            raise InvalidResource("Who is it for? Give --user, --client-id or --level.")
        target = {"user": user, "clientId": client_id}
    named = in_one_namespace(around, named)
    source, policy_key = None, f"{named.place}/{(named.name or '').rpartition('/')[2]}"
    needs_form = bool(rates) and form is None and level is None
    if not is_dry or named.name is None or needs_form:
        source = _looked_up(around, named, is_dry=is_dry)
        policy_key = source.declared.policy.key
        if level is None:
            member = _member(source, Entity(user=user, client_id=client_id))
            form = form or (None if member.contract is None else member.contract.form)
    spec: dict[str, Any] = {
        "policyRef": {"name": policy_key.partition("/")[2]},
        "target": {name: value for name, value in target.items() if value is not None},
        "action": "Exempt" if exempt else "SetRates",
        **span,
        "reason": reason,
    }
    if rates:
        if form is None:
            raise InvalidResource(
                "What do the rates apply to? Give --form perPartition, perBroker or total."
            )
        spec["rates"] = {form.value: rates}
    manifest = {
        "apiVersion": API_VERSION,
        "kind": QUOTA_OVERRIDES.kind,
        "metadata": {
            "name": name or _name(level or user or client_id or "", around.now_seconds()),
            "namespace": policy_key.partition("/")[0],
        },
        "spec": spec,
    }
    parse_object(manifest, strict=True)
    kubernetes = None if is_dry or source is None else source.kubernetes
    is_checked = source is not None or level is not None
    _create(around, kubernetes, manifest, output, policy_key=policy_key, is_checked=is_checked)


def _looked_up(around: CommandContext, named: PolicyOptions, *, is_dry: bool) -> PolicySource:
    """The policy with its members. Where only their words are missing in a dry run, the error of a
    cluster that cannot be asked says which.
    """
    try:
        return find_policy(around, named, may_be_in_files=False)
    except (NotFound, InvalidResource):
        raise
    except TidegateError as error:
        if not is_dry:
            raise
        raise InvalidResource(
            f"{error.for_command} To print the object without a cluster, name the policy, and give "
            "--form with rates."
        ) from error


def _create(
    around: CommandContext,
    kubernetes: Kubernetes | None,
    manifest: Mapping[str, Any],
    output: OutputFormat,
    *,
    policy_key: str,
    is_checked: bool,
) -> None:
    """Create it and say so; without Kubernetes it is only printed."""
    where, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    spec, is_dry = manifest["spec"], kubernetes is None
    starts_at, recurrence = spec.get("startsAt"), spec.get("recurrence")
    begins = f"It begins at {starts_at}. " if starts_at else ""
    ends = f"It ends automatically at {spec.get('expiresAt')}."
    if recurrence:
        ends = f"It comes back every week and ends for good at {recurrence['until']}."
    if kubernetes is not None:
        try:
            kubernetes.create(QUOTA_OVERRIDES, manifest)
        except Unauthorized as error:
            raise Unauthorized(
                error.what,
                advice="Your own login needs the right to create quotaoverrides. Print it for "
                "someone who has it: --dry-run=client -o yaml",
            ) from error

    def show(page: Page) -> None:
        made = "would be created; nothing was" if is_dry else "was created"
        page.say(f"QuotaOverride {where}/{name} {made}. {begins}{ends}", "bold")
        if not is_checked:
            page.say(
                f"Tidegate did not check whether a tier of policy {policy_key} has this member."
            )
        at = f" --at {starts_at}" if starts_at else ""
        page.say(f"What it does: tidegate plan {policy_key}{at}")
        page.say(f"End it early: kubectl delete qo {name} -n {where}")

    publish(around.out, output, manifest, show=show)
    around.exit_code = ExitCode.WOULD_CHANGE if is_dry else ExitCode.OK


def _member(source: PolicySource, entity: Entity) -> Member:
    """The member with exactly this user and client id. Raises NotFound with those alike."""
    tiers: Iterable[Tier] = source.declared.tiers or ()
    members = [member for tier in tiers for member in tier.members]
    for member in members:
        if member.entity == entity:
            return member
    alike = sorted(
        str(member.entity)
        for member in members
        if entity.user in (None, member.entity.user)
        or entity.client_id in (None, member.entity.client_id)
    )
    known = f" Members alike: {'; '.join(alike[:5])}." if alike else ""
    raise NotFound(
        Reason.NO_SUCH_MEMBER,
        f"No tier of policy {source.declared.policy.key} has the member {entity}; nothing was "
        f"created.{known} User and client id must be exactly the member's.",
    )


def _span(
    now_seconds: float,
    starts_at: str | None,
    lasting: str,
    recurrence: tuple[str, str] | None,
    days: str | None,
    time_zone: str | None,
) -> dict[str, Any]:
    """The fields of the spec that say when it is in force. Raises InvalidResource."""
    from tidegate.resources.fields import is_ago, moment
    from tidegate.resources.tiers import MAX_DAYS_AHEAD, MAX_RECURRING_DAYS

    if recurrence is None and (days is not None or time_zone is not None):
        raise InvalidResource("--days and --time-zone are of --recurrence, which is not given.")
    begins_at = now_seconds if starts_at is None else moment(starts_at, now_seconds=now_seconds)
    if starts_at is not None and (is_ago(starts_at) or begins_at < now_seconds):
        raise InvalidResource(
            f"--starts-at {starts_at} is in the past. Leave it out to begin now, or write a later "
            "time, such as 2026-11-29T22:00:00Z."
        )
    most_days = MAX_DAYS_AHEAD if recurrence is None else MAX_RECURRING_DAYS
    ends_at = begins_at + seconds_of(lasting, most_days)
    if ends_at > now_seconds + most_days * _UNITS["d"]:
        raise InvalidResource(
            f"It would end at {rfc3339(ends_at)}, which is more than {most_days} days from now. "
            "Create it later, or make it shorter."
        )
    begins = {} if starts_at is None else {"startsAt": rfc3339(begins_at)}
    if recurrence is None:
        return {**begins, "expiresAt": rfc3339(ends_at)}
    times: dict[str, Any] = (
        {} if days is None else {"days": [one.strip() for one in days.split(",")]}
    )
    times |= {"from": recurrence[0], "to": recurrence[1]}
    times |= {} if time_zone is None else {"timeZone": time_zone}
    return {**begins, "recurrence": {**times, "until": rfc3339(ends_at)}}


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LASTING = re.compile(r"([1-9][0-9]{0,6})([smhd])")


def seconds_of(text: str, most_days: int) -> int:
    """The seconds in `90m` or `2h`. Raises InvalidResource for another form, or for more days."""
    found = _LASTING.fullmatch(text.strip())
    if found is None:
        raise InvalidResource(f"{text!r} is not a duration. Write it as 45m, 2h or 3d.")
    seconds = int(found[1]) * _UNITS[found[2]]
    if seconds > most_days * _UNITS["d"]:
        raise InvalidResource(
            f"An override lasts {most_days} days at most, {text} is longer. Create another "
            "one when it ends."
        )
    return seconds


def _name(whom: str, now_seconds: float) -> str:
    """A name that Kubernetes takes: `bob-20261123-0710`."""
    stamp = re.sub(r"[^0-9]", "", rfc3339(now_seconds))
    plain = re.sub(r"[^a-z0-9]+", "-", whom.lower()).strip("-")[:40] or "override"
    return f"{plain}-{stamp[:8]}-{stamp[8:14]}"
