"""The Pod that a Job runs in, as its environment tells: who it is, and how much memory it may use. `kube.job_manifest` writes it there."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.errors import InvalidResource

# Java itself, its threads and classes, and Python's workers, in which samples are folded, have the other half.
_HEAP_SHARE = 0.5
_LEAST_HEAP_MIB = 512  # Spark refuses to start with less than 450


@dataclass(frozen=True, slots=True)
class Pod:
    """`address` is what executors reach it at; `image` that of executors, with the Secrets to pull it."""

    name: str
    namespace: str
    address: str
    memory_mib: int
    image: str
    service_account: str
    pull_secrets: tuple[str, ...] = ()


def pod_of(environment: Mapping[str, str]) -> Pod | None:
    """None outside of a Job's Pod. Raises InvalidResource where only a part is told."""
    if "POD_NAME" not in environment:
        return None
    try:
        return Pod(
            name=environment["POD_NAME"],
            namespace=environment["POD_NAMESPACE"],
            address=environment["POD_IP"],
            memory_mib=int(environment["MEMORY_LIMIT_MIB"]),
            image=environment.get("TIDEGATE_IMAGE", ""),
            service_account=environment.get("SERVICE_ACCOUNT", "default"),
            pull_secrets=tuple(name for name in environment.get("TIDEGATE_PULL_SECRETS", "").split(",") if name),
        )
    except (KeyError, ValueError) as error:
        told = f"The Pod's environment does not tell what a rollup needs to know ({type(error).__name__}: {error})."
        raise InvalidResource(f"{told} Jobs that the operator makes have it; see examples/rollup/backfill.yaml for your own.") from error


def heap_mib(memory_mib: int) -> int:
    """How much of a Pod's memory Java may fill with objects."""
    return max(_LEAST_HEAP_MIB, int(memory_mib * _HEAP_SHARE))
