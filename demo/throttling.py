"""Plays experiments 2 and 3 under Tidegate: kubectl lowers the limit, tiers go down, kubectl raises it, all return. It judges nothing."""

import time

from demo.declared import NAMESPACE, POLICY
from demo.episode import Episode
from demo.estate import Estate
from demo.kubernetes_events import KubernetesEvents
from demo.tide.board import TideBoard
from demo.tide.declared import declared_resources, limit_patch
from demo.tide.figures import CARD_MEAN_SECONDS, LIMIT_SLACK
from demo.tide.length import QUIET_SECONDS, SETTLE_SECONDS, TideLength
from demo.tide.script import CONTRACT, HIGH_LIMIT, LIMIT, LOWERED
from demo.tide.stage import Stage
from demo.tide.tier_watch import TierWatch

TITLE = "Experiments 2 and 3, Tidegate"
_READY_TIMEOUT_SECONDS = 60
# How far above its throttled rate a quota may rest: a floor of its own for consumers lies 5 % above 1 MB/s.
_AT_FLOOR = 1.06
_FULL_FOR_SECONDS = 14


def play_tidegate(parts: Estate, board: TideBoard, length: TideLength, *, run: str) -> Episode:
    """The whole episode; the policy and its tiers stay. `run` tells its files from those of another playing."""
    declare(parts, board)
    events = KubernetesEvents(parts.kube.kubeconfig, board.note, namespace=NAMESPACE)
    with Stage(parts, board, title=TITLE, run=run) as stage, TierWatch(parts.kube.kubeconfig, board) as tiers, events:
        board.show_limit(HIGH_LIMIT)
        stage.wait_for_full_load(length.free_seconds)
        stage.times.limited = time.time()
        _patch_limit(stage, LIMIT)
        stage.wait_until(lambda: _rests(stage), "tiers step down, L3 first", longest_seconds=length.longest_cut_seconds)
        _measure(stage, length)
        stage.times.raised = time.time()
        _patch_limit(stage, HIGH_LIMIT)
        stage.wait_until(lambda: _all_back(stage), "all return to their contracts", longest_seconds=length.longest_return_seconds)
        return stage.episode(tiers.steps())


def declare(parts: Estate, board: TideBoard) -> None:
    """Apply the policy with its limits and one tier a level, take experiment 1's tiers away, and wait until all is ready."""
    board.show_activity(TITLE, "kubectl apply -f demo/throttling.yaml")
    declared = declared_resources(parts.kafka, parts.prometheus.ready())
    parts.kube.kubectl("-n", NAMESPACE, "apply", "-f", "-", input=declared)
    parts.kube.kubectl("-n", NAMESPACE, "delete", "bt", "accounting", "reporting", "--ignore-not-found")
    ready = ("wait", "--for=condition=Ready", f"--timeout={_READY_TIMEOUT_SECONDS}s")
    parts.kube.kubectl("-n", NAMESPACE, *ready, "bt", "--all", timeout_seconds=_READY_TIMEOUT_SECONDS + 10)


def withdraw(parts: Estate) -> None:
    """Delete the policy, which gives every quota back, and then the tiers."""
    timeout = _READY_TIMEOUT_SECONDS + 10
    parts.kube.kubectl("-n", NAMESPACE, "delete", "bbp", POLICY, "--wait", f"--timeout={_READY_TIMEOUT_SECONDS}s", timeout_seconds=timeout)
    parts.kube.kubectl("-n", NAMESPACE, "delete", "bt", "--all", timeout_seconds=timeout)


def _patch_limit(stage: Stage, limit: int) -> None:
    patch = limit_patch(limit)
    stage.command(f"kubectl patch bbp {POLICY} --type merge -p '{patch}'")
    stage.parts.kube.kubectl("-n", NAMESPACE, "patch", "bbp", POLICY, "--type", "merge", "-p", patch)
    stage.board.show_limit(limit)


def _measure(stage: Stage, length: TideLength) -> None:
    """Measure from one sawtooth after the last write on; where the tiers rested before this was called, that time counts."""
    last_write = max((step.at_seconds for step in stage.witness.steps()), default=stage.times.limited)
    stage.times.measured_from = float(int(last_write + SETTLE_SECONDS))
    stage.times.measured_seconds = length.measure_seconds
    left = stage.times.measured_from + length.measure_seconds + 1 - time.time()
    stage.wait("measuring the tiers at rest", max(0.0, left))


def _rests(stage: Stage) -> bool:
    """Every lower tier is at its throttled rate, or the card is within the limit and nothing was written for a while."""
    quotas = stage.witness.quotas()
    if all((quotas.get(business.level) or CONTRACT) <= (business.throttled or 0) * _AT_FLOOR for business in LOWERED):
        return True
    writes = [step.at_seconds for step in stage.witness.steps() if step.at_seconds >= stage.times.limited]
    quiet = bool(writes) and time.time() - writes[-1] >= QUIET_SECONDS
    sent = stage.card_rate(CARD_MEAN_SECONDS)
    return quiet and sent is not None and sent <= LIMIT * (1 + LIMIT_SLACK)


def _all_back(stage: Stage) -> bool:
    """Every quota is the contract and everybody has got what they want for a while."""
    return set(stage.witness.quotas().values()) == {CONTRACT} and stage.all_full(_FULL_FOR_SECONDS)
