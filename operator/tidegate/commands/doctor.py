"""`tidegate doctor`: what on this cluster keeps Tidegate from working, and what to do about it.

Each system is asked as the operator asks it, with the operator's own code, and nothing is changed
anywhere. A finding has what is so, what follows from it, and what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.findings import (
    QUOTAS_STAY,
    Finding,
    State,
    clock_finding,
    failed,
    finding_document,
    ok,
    problem,
    show_findings,
    summary_words,
    unknown,
    warning,
)
from tidegate.commands.inputs import PolicySource, find_policy
from tidegate.commands.options import CommandOptions, PolicyOptions
from tidegate.commands.output import ExitCode, OutputFormat, Page, publish
from tidegate.errors import TidegateError, Unauthorized
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES
from tidegate_logic.contracts.desired import DEFAULT_USER
from tidegate_logic.model import Entity, Mode, StrimziUsers
from tidegate_logic.quotas.strimzi import (
    IGNORED_USERS,
    declaring,
    is_within_reach,
    kafka_user_of,
    removal_words,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.words import counted

if TYPE_CHECKING:
    from tidegate.kube.api import Kubernetes
    from tidegate.kube.login import Login, Right


@options.command
def doctor(
    around: CommandContext,
    *,
    asked: CommandOptions,
    metrics_credentials_file: options.MetricsCredentialsFile = None,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Diagnose problems and suggest fixes.

    Checks everything that a policy needs: custom resources, permissions, ZooKeeper, brokers, quota
    plugins and windows, delay queues, every series that control needs, and clocks. Each finding
    comes with its impact and a fix. Nothing is changed.

    Permissions are checked for your own login. To check the operator's, use --as
    system:serviceaccount:NAMESPACE:NAME. With --file, Kubernetes is not queried.

    Exit code 1 means that there is a problem, 0 that there are at most warnings.
    """
    examination = Examination(around, asked, metrics_credentials_file)
    findings = list(examination.findings())
    counts = Counter(one.state for one in findings)

    def show(page: Page) -> None:
        show_findings(page, findings)
        page.heading(f"{summary_words(findings)}. Nothing was changed.")

    document = {
        "policy": examination.policy_key,
        "findings": [finding_document(one) for one in findings],
        "summary": {state.value: counts[state] for state in State},
    }
    publish(around.out, output, document, show=show)
    around.exit_code = ExitCode.ERROR if counts[State.PROBLEM] else ExitCode.OK


class Examination:
    """One look at everything that a policy needs. `policy_key` None = no policy was found."""

    def __init__(
        self, around: CommandContext, asked: CommandOptions, metrics_credentials: Path | None
    ) -> None:
        self._around = around
        self._asked = asked
        self._metrics_credentials = metrics_credentials
        self.policy_key: str | None = None

    def findings(self) -> Iterator[Finding]:
        """Every finding, system by system, as each was examined."""
        from tidegate.commands.doctor_budgets import examine_budgets
        from tidegate.commands.doctor_cluster import examine_cluster
        from tidegate.commands.doctor_metrics import examine_metrics
        from tidegate.commands.doctor_queues import examine_queues
        from tidegate.commands.doctor_share_groups import examine_share_groups

        source: PolicySource | None = None
        if self._asked.policy.file:
            yield unknown("kubernetes", "Not asked: the policy comes from files.")
            source = yield from self._policy()
        else:
            source = yield from self._kubernetes(self._asked.policy)
        if source is None:
            for check in ("zookeeper", "kafka", "prometheus"):
                yield unknown(check, "Not checked: there is no policy that says where it is.")
            return
        brokers, metered, controllers = yield from examine_cluster(
            self._around, source, self._asked.access
        )
        yield from examine_budgets(source)
        yield from examine_queues(self._around, source, self._asked.access, brokers)
        yield from examine_share_groups(
            self._around, source, self._asked.access, self._metrics_credentials, brokers
        )
        yield from examine_metrics(
            self._around,
            source,
            self._metrics_credentials,
            brokers=brokers,
            metered=metered,
            controllers=controllers,
        )

    def _kubernetes(self, named: PolicyOptions) -> Generator[Finding, None, PolicySource | None]:
        around = self._around
        try:
            login = around.open_login(named.kubeconfig, named.context, named.as_user)
        except TidegateError as error:
            yield _no_kubernetes(error)
            return None
        with closing(login):
            try:
                user = yield from _api_server(around, login)
                kinds_are_served = yield from _kinds(login)
            except TidegateError as error:
                yield _no_kubernetes(error)
                return None
            source = None
            if kinds_are_served:
                source = yield from self._policy()
            try:
                yield from _rights(login, user, source, named)
                yield from _budget_rights(login, source, named)
            except TidegateError as error:
                yield _no_kubernetes(error)
        return source

    def _policy(self) -> Generator[Finding, None, PolicySource | None]:
        try:
            source = find_policy(self._around, self._asked.policy)
        except Unauthorized:
            yield unknown("policy", "Not read: the right to list policies and tiers is missing.")
            return None
        except TidegateError as error:
            yield failed(
                "policy",
                error,
                "Without a policy nothing is managed.",
                "Apply a BrokerBandwidthPolicy; examples/00-policy.yaml is one to start with.",
            )
            return None
        self.policy_key = source.declared.policy.key
        yield from _mode(source)
        yield from _operator(source)
        for remark in source.remarks():
            yield problem(
                "policy",
                Reason.INVALID_SPEC,
                remark,
                "What it declares is not applied.",
                "Correct the object that is named.",
            )
        yield from _examine_strimzi(source)
        return source


# --- Kubernetes: who asks, what is served, what is allowed ----------------------------------------


def _no_kubernetes(error: TidegateError) -> Finding:
    return failed(
        "kubernetes",
        error,
        f"Policies and tiers cannot be read. {QUOTAS_STAY}",
        "Check --kubeconfig and --context, the login in it, and the network path to the API "
        "server.",
    )


def _api_server(around: CommandContext, login: Login) -> Generator[Finding, None, str]:
    version = login.version()
    user = login.user()
    name = f"as {user}" if user else "by a login whose name is not shown"
    yield ok("kubernetes", f"Kubernetes {version} answers, asked {name}.")
    clock = clock_finding(
        "Kubernetes' API server", login.server_seconds, around.now_seconds(), is_for_readings=False
    )
    if clock is not None:
        yield clock
    return user


_KINDS = (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES)
_INSTALL = "Install them: kubectl apply --server-side -f crds/ (the chart does it by itself)."


def _kinds(login: Login) -> Generator[Finding, None, bool]:
    group, version = _KINDS[0].group, _KINDS[0].version
    served = login.served(group, version)
    missing = [kind.kind for kind in _KINDS if kind.plural not in served]
    if not missing:
        yield ok("crds", f"{group}/{version} is served with all its kinds.")
        return True
    yield problem(
        "crds",
        Reason.CRDS_MISSING,
        f"The API server does not serve {', '.join(missing)} of {group}/{version}.",
        "No policy or tier can be applied, and the operator cannot watch any.",
        _INSTALL,
    )
    return False


SERVICE_ACCOUNT = "system:serviceaccount:"
_ASKED_TOGETHER = 8


def needed_rights(
    namespace: str,
    secrets: Collection[str],
    *,
    reads_namespaces: bool,
    lease_namespace: str,
    makes_jobs: bool = False,
) -> tuple[Right, ...]:
    """What the operator needs for a policy in `namespace`, as examples/rights/ grants it; for one
    with a rollup also what examples/rollup/ grants to the operator.

    `lease_namespace` "" = not known, so that rights on Leases are left out.
    """
    from tidegate.kube.login import Right

    kinds = [kind.plural for kind in _KINDS]
    return (
        *(
            Right("tidegate.io", kind, verb, namespace)
            for kind in kinds
            for verb in ("get", "list", "watch")
        ),
        Right("tidegate.io", kinds[0], "patch", namespace),
        *(Right("tidegate.io", f"{kind}/status", "patch", namespace) for kind in kinds),
        Right("events.k8s.io", "events", "create", namespace),
        *(Right("", "secrets", "get", namespace, name) for name in sorted(secrets)),
        *((Right("", "namespaces", "get"),) if reads_namespaces else ()),
        *(
            Right("coordination.k8s.io", "leases", verb, lease_namespace)
            for verb in ("get", "list", "create", "update", "delete")
            if lease_namespace
        ),
        *(right for right in _job_rights(namespace) if makes_jobs),
    )


def _job_rights(namespace: str) -> tuple[Right, ...]:
    from tidegate.kube.login import Right

    return (
        *(Right("batch", "jobs", verb, namespace) for verb in ("list", "create", "delete")),
        Right("", "configmaps", "get", namespace),
        Right("", "persistentvolumeclaims", "get", namespace),
    )


def _rights(
    login: Login, user: str, source: PolicySource | None, named: PolicyOptions
) -> Iterator[Finding]:
    namespace = named.namespace or ""
    secrets: frozenset[str] = frozenset()
    reads_namespaces, makes_jobs = False, False
    if source is not None:
        namespace = source.declared.policy.key.partition("/")[0]
        spec = source.declared.spec
        secrets = spec.kafka.secret_names
        if spec.metrics is not None:
            secrets |= spec.metrics.prometheus.secret_names
        makes_jobs = spec.rollup is not None
        reads_namespaces = spec.allowed_tiers.namespaces == "Selector"
    is_operator = user.startswith(SERVICE_ACCOUNT)
    rights = needed_rights(
        namespace,
        secrets,
        reads_namespaces=reads_namespaces,
        makes_jobs=makes_jobs,
        lease_namespace=user.removeprefix(SERVICE_ACCOUNT).partition(":")[0] if is_operator else "",
    )
    with ThreadPoolExecutor(_ASKED_TOGETHER) as pool:
        allowed = list(pool.map(login.may, rights))
    missing = [right for right, may in zip(rights, allowed, strict=True) if not may]
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    whose = user or "this login"
    if missing:
        yield problem(
            "rights",
            Reason.NOT_AUTHORIZED,
            f"{whose} may not, {where}: {', '.join(map(str, missing))}.",
            "An operator with this login cannot read or report what is listed.",
            "Grant them: examples/rights/operator.yaml has exactly the rights that are needed; "
            "examples/rollup/rights.yaml has those on jobs, configmaps and persistentvolumeclaims.",
        )
        return
    yield ok("rights", f"{whose} has the {len(rights)} rights that an operator needs {where}.")
    if not is_operator:
        yield unknown(
            "rights",
            "These were your own rights, not the operator's.",
            "Check the operator's with --as system:serviceaccount:NAMESPACE:NAME.",
        )


def _budget_rights(
    login: Login, source: PolicySource | None, named: PolicyOptions
) -> Iterator[Finding]:
    from tidegate.commands.doctor_budgets import examine_budget_rights

    namespace = named.namespace or ""
    if source is not None:
        namespace = source.declared.policy.key.partition("/")[0]
    yield from examine_budget_rights(login, source, namespace=namespace)


# --- the policy, and the operator's last word on it -----------------------------------------------


def _mode(source: PolicySource) -> Iterator[Finding]:
    from tidegate.observe.observation import long_mutes

    policy = source.declared.policy
    tiers = len(source.declared.tiers or ())
    what = f"Policy {policy.key}, mode {policy.mode.value}, {counted(tiers, 'tier')}."
    if policy.paused:
        yield warning(
            "policy",
            Reason.PAUSED,
            f"{what} It is paused by {' and '.join(policy.paused_by)}.",
            "Nothing is written to Kafka, not even when it is deleted.",
            f"End the pause when it has served its purpose: tidegate resume {policy.key}",
        )
    elif policy.mode is Mode.OBSERVE:
        yield ok(
            "policy",
            f"{what} Nothing is written to Kafka until spec.mode is Enforce; tidegate plan shows "
            "what would be.",
        )
    else:
        yield ok("policy", what)
    for note in long_mutes(policy):
        yield warning(
            "policy",
            note.reason,
            f"{note.message}.",
            "A throttled client that gives up sends again what was already accepted, and "
            "may disconnect; its throttle delay goes on.",
            "Set request.timeout.ms of the tiers' clients, or escalation.maxMuteSeconds.",
        )
    if not tiers:
        yield warning(
            "policy",
            Reason.POLICY_NOT_FOUND,
            f"No BusinessTier refers to policy {policy.key}.",
            "No quota would be managed.",
            "Apply BusinessTiers with spec.policyRef.name of this policy.",
        )


def _operator(source: PolicySource) -> Iterator[Finding]:
    if source.kubernetes is None:
        return
    conditions: Iterable[Mapping[str, Any]] = source.status.get("conditions") or ()
    ready = next((one for one in conditions if one.get("type") == "Ready"), None)
    if ready is None:
        yield _no_operator(source, source.kubernetes)
    elif ready.get("status") != "True":
        yield warning(
            "operator",
            _reason(ready.get("reason")),
            f"The operator reports Ready={ready.get('status')} ({ready.get('reason')}): "
            f"{ready.get('message')}",
            "It holds back what it cannot do; the message says what.",
            "The cause is most likely among the findings below.",
        )
    else:
        yield ok("operator", "The operator reports Ready=True.")


def _no_operator(source: PolicySource, kubernetes: Kubernetes) -> Finding:
    """Why nobody has reported: none runs, or one that does watches other namespaces."""
    key = source.declared.policy.key
    namespace = key.partition("/")[0]
    try:
        watched = {
            raw["metadata"]["namespace"]
            for raw in kubernetes.list_all(BROKER_BANDWIDTH_POLICIES, ())
            if (raw.get("status") or {}).get("conditions")
        }
    except TidegateError:  # the right to list them may be of one namespace
        watched = set()
    if watched - {namespace}:
        return warning(
            "operator",
            Reason.STARTING,
            f"Policy {key} exists, and no operator watches its namespace: one reports on policies "
            f"in {', '.join(sorted(watched - {namespace}))}.",
            "Nothing is managed until an operator watches this namespace.",
            f"Add {namespace} to watch.namespaces of the chart, or tidegate run --namespace "
            f"{namespace}.",
        )
    return warning(
        "operator",
        Reason.STARTING,
        f"Policy {key} exists, and no operator has reported on it.",
        "Nothing is managed until one runs and watches this namespace.",
        f"Install it (helm install, or tidegate run) with {namespace} among watch.namespaces, and "
        "check its log.",
    )


def _reason(word: object) -> Reason:
    """The reason of that word; an internal error for one of another version."""
    return next((one for one in Reason if one.value == word), Reason.INTERNAL_ERROR)


# --- beside Strimzi: whose quotas it owns or removes ----------------------------------------------


_STRIMZI = "strimzi"
_SHOWN_USERS = 5
_FOUGHT = "Strimzi removes the quota every two minutes, and Tidegate leaves it alone for minutes."


def _examine_strimzi(source: PolicySource) -> Iterator[Finding]:
    """Findings where the policy's Kafka cluster is one of Strimzi's; none elsewhere."""
    strimzi = source.declared.strimzi
    if strimzi is None:
        return
    users = {entity for entity in source.declared.entities if is_within_reach(entity)}
    if strimzi.users is None:
        yield _unread_kafka_users(strimzi)
        return
    owned = {entity for entity in users if declaring(strimzi, entity) is not None}
    # with a client id too: the User Operator takes such a quota for the user's
    everybody = {Entity(one.user) for one in source.declared.entities if isinstance(one.user, str)}
    without = {user for user in everybody if kafka_user_of(strimzi, user) is None}
    removed = {entity for entity in users - without if removal_words(strimzi, entity)}
    removed |= source.declared.entities & {DEFAULT_USER}
    if owned:
        yield warning(
            _STRIMZI,
            Reason.OWNED_BY_STRIMZI,
            f"KafkaUsers of {strimzi.cluster} declare the quotas of {_user_names(owned)}.",
            "These quotas are Strimzi's: members of tiers with these users change nothing.",
            "Take the members out of the tiers, or spec.quotas out of the KafkaUsers "
            "(docs/strimzi.md).",
        )
    for entity in sorted(removed, key=lambda one: one.sort_key)[:_SHOWN_USERS]:
        yield warning(
            _STRIMZI, Reason.CONTENDED, f"{removal_words(strimzi, entity)}.", _FOUGHT, _STRIMZI_CURE
        )
    if without:
        yield warning(
            _STRIMZI,
            Reason.CONTENDED,
            f"{_user_names(without)} {'has' if len(without) == 1 else 'have'} no KafkaUser in "
            f"{strimzi.cluster}. Whether {IGNORED_USERS} of the User Operator fits the name cannot "
            "be asked.",
            "Where it does not, the User Operator removes such a user's quotas every two minutes, "
            "with its ACLs, its SCRAM credentials and the Secret of that name.",
            f"Set {IGNORED_USERS} before a tier names such a user (docs/strimzi.md).",
        )
    if not owned and not removed and not without:
        yield ok(
            _STRIMZI,
            f"Strimzi's cluster {strimzi.cluster} has {counted(len(strimzi.users), 'KafkaUser')}; "
            "none owns or removes a quota that the tiers name.",
        )


_STRIMZI_CURE = "Do what the finding says, or give the quota to Strimzi (docs/strimzi.md)."


def _unread_kafka_users(strimzi: StrimziUsers) -> Finding:
    why = strimzi.unread or "this login may not list them"
    return warning(
        _STRIMZI,
        Reason.KAFKA_USERS_UNREAD,
        f"The KafkaUsers of Strimzi's cluster {strimzi.cluster} could not be read: "
        f"{why.rstrip('.')}.",
        "An operator with this login does not know which quotas Strimzi declares, and those are "
        "changed by both.",
        "Grant list on kafkausers.kafka.strimzi.io: strimzi.enabled of the chart, or "
        "examples/strimzi/rights.yaml.",
    )


def _user_names(entities: set[Entity]) -> str:
    shown = sorted(str(one.user) for one in entities)
    more = f" and {len(shown) - _SHOWN_USERS} more" if len(shown) > _SHOWN_USERS else ""
    return f"{', '.join(shown[:_SHOWN_USERS])}{more}"
