"""`tidegate rollup job`: run by a rollup Job's Pod, with the exit codes of `kube.rollup_jobs`."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import find_policy, owner_of
from tidegate.commands.options import PolicyOptions
from tidegate.commands.output import ExitCode, Page
from tidegate.errors import InvalidResource, NotFound, Unauthorized, UserActionRequired
from tidegate_logic.reasons import Reason
from tidegate_logic.rollup_schedule import Window

if TYPE_CHECKING:
    from tidegate.rollup.engine import RollupPolicy

_PACKAGES = ("numpy", "pandas", "pyarrow", "pyspark")
_TERMINATED = 128 + signal.SIGTERM


@options.command
def job(
    around: CommandContext,
    *,
    policy: Annotated[
        str,
        typer.Option("--policy", metavar="NAMESPACE/NAME", help="Policy whose usage is published."),
    ],
    window_start: Annotated[
        str,
        typer.Option(
            "--window-start",
            metavar="TIME",
            help="Start of the window, such as 2026-11-22T07:00:00Z.",
        ),
    ],
    window_end: Annotated[
        str,
        typer.Option(
            "--window-end", metavar="TIME", help="End of the window; must be in the past."
        ),
    ],
    kubeconfig: options.Kubeconfig = None,
    kube_context: options.KubeContext = None,
) -> None:
    """Publish the usage tables of one window, as a Job.

    The operator's Jobs run this; it also records the result for the operator.

    Exit codes: 64 if the policy or something it refers to has to be corrected, 65 if tables are
    damaged or of another version, 77 if access was refused. Retrying does not help in these cases.
    1 for errors that may be temporary.
    """
    from tidegate.resources.fields import moment

    around.exit_code_of = exit_code_of
    require_extra()
    from tidegate.rollup.job_run import run_job

    asked = policy_options(policy, kubeconfig=kubeconfig, context=kube_context)
    window = Window(
        *(
            round(moment(text, now_seconds=around.now_seconds()) * 1000)
            for text in (window_start, window_end)
        )
    )
    with _ended_by_sigterm(), TemporaryDirectory(prefix="tidegate-job-") as folder:
        found = rollup_policy(around, asked)
        run_job(
            found, window, folder=Path(folder), clock_ms=around.now_ms, tell=Page(around.err).say
        )


def policy_options(policy: str, *, kubeconfig: Path | None, context: str | None) -> PolicyOptions:
    """The policy by its full name. Only its namespace is read: a Job may read no other."""
    namespace, _, name = policy.partition("/")
    if not namespace or not name:
        raise InvalidResource(
            f"{policy!r} is not the name of a policy. Write it as NAMESPACE/NAME."
        )
    return PolicyOptions(policy=policy, kubeconfig=kubeconfig, context=context, namespace=namespace)


def rollup_policy(around: CommandContext, asked: PolicyOptions) -> "RollupPolicy":
    """The rollup part of a policy, with the Secrets for Prometheus.

    Raises InvalidResource for a policy without `rollup` or `metrics`, and what asking Kubernetes
    raises.
    """
    from tidegate.observe.connections import metrics_settings
    from tidegate.rollup.engine import RollupPolicy

    source = find_policy(around, asked)
    declared, spec = source.declared, source.declared.spec
    if spec.rollup is None or spec.metrics is None or source.kubernetes is None:
        lacking = "rollup" if spec.rollup is None else "metrics"
        raise InvalidResource(
            f"Policy {declared.policy.key} has no spec.{lacking}, so there is nothing to roll up "
            f"for it. Add it."
        )
    metrics = metrics_settings(spec.metrics, source.metrics_secrets())
    return RollupPolicy(
        source.kubernetes,
        declared.policy,
        declared.tiers or (),
        source.tier_statuses,
        source.tiers_changed_ms,
        spec.rollup,
        metrics,
        owner_of(source),
        source.known_budgets,
    )


def require_extra() -> None:
    """Raise NotFound if packages of usage tables are missing, with how to install them.

    The operator does without them.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        lacking = f"Usage tables need {', '.join(missing)}, which this installation does not have."
        raise NotFound(
            Reason.INVALID_SPEC,
            lacking,
            advice="Install the extra tidegate[rollup]; `make setup` in a clone does.",
        )


def exit_code_of(error: Exception) -> int:
    """The exit code for an error; Kubernetes decides by it whether to retry the Job."""
    from tidegate.kube.rollup_jobs import EXIT_BAD_CONFIGURATION, EXIT_BAD_DATA, EXIT_FORBIDDEN
    from tidegate.rollup.tables.format import OtherVersion, UsageDamaged

    match error:
        case Unauthorized():
            return EXIT_FORBIDDEN
        case UsageDamaged() | OtherVersion():
            return EXIT_BAD_DATA
        case UserActionRequired():
            return EXIT_BAD_CONFIGURATION
    return ExitCode.ERROR


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """End on SIGTERM.

    The first process of a container ignores the signal unless it has a handler, and would run until
    it is killed.
    """

    def end(_number: int, _frame: object) -> NoReturn:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
