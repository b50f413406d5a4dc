"""Which Pod a policy's rollup Jobs get: what the policy says of it, and what the operator was started with. Pure."""

from collections.abc import Mapping
from typing import Any

from controller_logic.rollup_schedule import JobState, Window, WindowJob
from tidegate.kube.rollup_jobs import END, GENERATION, START, JobPod
from tidegate.resources.fields import parse_moment
from tidegate.resources.rollup import Rollup
from tidegate.settings import RollupOffer

SHORTEST_DEADLINE_SECONDS, LONGEST_DEADLINE_SECONDS = 1800, 6 * 3600


def pod_of(spec: Rollup, offer: RollupOffer) -> JobPod:
    """The Pod of a Job of this policy. A Job may take as long as its window is, within half an hour and six."""
    driver, mount_path = spec.driver_or_default, spec.storage.mount_path
    claim = spec.storage.claim_name
    return JobPod(
        image=offer.image,
        service_account=offer.service_account,
        cores=driver.cores_or_default,
        requested_millicores=driver.requested_millicores,
        memory=driver.memory_or_default,
        deadline_seconds=min(LONGEST_DEADLINE_SECONDS, max(SHORTEST_DEADLINE_SECONDS, spec.every_seconds_or_default)),
        mount=None if claim is None or mount_path is None else (claim, mount_path),
        pull_secrets=offer.pull_secrets,
        has_executors=spec.executors_or_default.instances_or_default > 0,
        # executors are Pods of the same image, and no Pod can read its own
        environment={"TIDEGATE_IMAGE": offer.image, "TIDEGATE_PULL_SECRETS": ",".join(offer.pull_secrets)},
    )


def window_job(raw: Mapping[str, Any]) -> WindowJob | None:
    """A Job as the core sees it; None for one that does not say which window it is for."""
    annotations = raw["metadata"].get("annotations") or {}
    start, end, generation = (annotations.get(name, "") for name in (START, END, GENERATION))
    try:
        window = Window(round(parse_moment(start) * 1000), round(parse_moment(end) * 1000))
    except ValueError:
        return None
    state, ended_at, message = _end_of(raw.get("status") or {})
    ended_at_seconds = None if ended_at is None else parse_moment(ended_at)
    return WindowJob(raw["metadata"]["name"], window, state, int(generation) if generation.isdecimal() else 0, ended_at_seconds, message)


def _end_of(status: Mapping[str, Any]) -> tuple[JobState, str | None, str]:
    """How the Job ended and when; one whose Pods are still on their way out has not ended yet."""
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            state = JobState.SUCCEEDED if condition["type"] == "Complete" else JobState.FAILED
            told = ": ".join(text for text in (condition.get("reason"), condition.get("message")) if text)
            return state, condition.get("lastTransitionTime"), told
    return JobState.ACTIVE, None, ""
