"""`tidegate rollup job`: what a rollup Job's Pod runs. It ends with the exit codes of which `kube.job_manifest` tells Kubernetes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from controller_logic.reasons import Reason
from controller_logic.rollup_schedule import Window
from tidegate.commands import options
from tidegate.commands.context import CommandContext, command_context
from tidegate.commands.inputs import PolicyOptions, find_policy
from tidegate.commands.output import ExitCode, Page
from tidegate.control.connections import metrics_settings
from tidegate.errors import InvalidResource, NotFound, Unauthorized, UserActionRequired
from tidegate.kube.rollup_jobs import EXIT_BAD_CONFIGURATION, EXIT_BAD_DATA, EXIT_FORBIDDEN
from tidegate.resources.fields import moment

if TYPE_CHECKING:
    from tidegate.rollup.engine import RollupPolicy

_PACKAGES = ("numpy", "pandas", "pyarrow", "pyspark")
_TERMINATED = 128 + signal.SIGTERM


def job(
    context: typer.Context,
    *,
    policy: Annotated[str, typer.Option("--policy", metavar="NAMESPACE/NAME", help="Whose usage.")],
    window_start: Annotated[str, typer.Option("--window-start", metavar="TIME", help="The window's beginning: 2026-11-22T07:00:00Z.")],
    window_end: Annotated[str, typer.Option("--window-end", metavar="TIME", help="Its end; it has to be over.")],
    kubeconfig: options.Kubeconfig = None,
    kube_context: options.KubeContext = None,
    debug: options.Debug = False,
) -> None:
    """Publish a window's usage tables and write down what was found, for the operator, whose Jobs run this.

    Exit codes: 64 when somebody has to mend the policy or what it names, 65 when tables are damaged or of another version, 77 when somebody
    refused the Job: trying again mends none of them. 1 for what may pass by itself.
    """
    around = command_context(context, debug=debug)
    around.exit_code_of = exit_code_of
    require_extra()
    from tidegate.rollup.job_run import run_job

    asked = policy_options(policy, kubeconfig=kubeconfig, context=kube_context)
    window = Window(*(round(moment(text, now_seconds=around.now_seconds()) * 1000) for text in (window_start, window_end)))
    with _ended_by_sigterm(), TemporaryDirectory(prefix="tidegate-job-") as folder:
        found = rollup_policy(around, asked)
        run_job(found, window, folder=Path(folder), clock_ms=around.now_ms, tell=Page(around.err).say)


def policy_options(policy: str, *, kubeconfig: Path | None, context: str | None) -> PolicyOptions:
    """The policy by its full name: only its own namespace is looked at, for a Job may look at no other."""
    namespace, _, name = policy.partition("/")
    if not namespace or not name:
        raise InvalidResource(f"{policy!r} names no policy. Write it as NAMESPACE/NAME.")
    return PolicyOptions(policy=policy, kubeconfig=kubeconfig, context=context, namespace=namespace)


def rollup_policy(around: CommandContext, asked: PolicyOptions) -> "RollupPolicy":
    """What a policy declares of its rollups, with the Secrets for Prometheus.

    Raises InvalidResource for a policy without `rollup` or `metrics`, and what asking Kubernetes raises.
    """
    from tidegate.rollup.engine import RollupPolicy

    source = find_policy(around, asked)
    declared, spec = source.declared, source.declared.spec
    if spec.rollup is None or spec.metrics is None or source.kubernetes is None:
        lacking = "rollup" if spec.rollup is None else "metrics"
        raise InvalidResource(f"Policy {declared.policy.key} has no spec.{lacking}, so there is nothing to roll up for it. Add it.")
    metrics = metrics_settings(spec.metrics, source.metrics_secrets())
    return RollupPolicy(
        source.kubernetes,
        declared.policy,
        declared.tiers or (),
        source.tier_statuses,
        spec.rollup,
        metrics,
    )


def require_extra() -> None:
    """Raises NotFound with the command that installs what usage tables need, where that is missing: the operator itself does without."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        told = f"Usage tables need {', '.join(missing)}, which this installation does not have."
        raise NotFound(Reason.INVALID_SPEC, f"{told} `pip install 'tidegate[rollup]'` brings them; `make setup` of a clone does, too.")


def exit_code_of(error: Exception) -> int:
    """What Kubernetes is told, which decides whether the Job is tried again."""
    from tidegate.rollup.tables.format import UsageDamaged
    from tidegate.rollup.tables.manifest import OtherVersion

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
    """The first process of a container is deaf to SIGTERM unless it listens; this one would then be waited for until it is killed."""

    def end(_number: int, _frame: object) -> NoReturn:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
