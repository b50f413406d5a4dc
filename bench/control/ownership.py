"""The way out: what is left in ZooKeeper after a policy is deleted."""

import time
from functools import partial

from kazoo.exceptions import NoNodeError
from kubernetes.client.exceptions import ApiException

from bench.control.latency import cold
from bench.control.world import POLICY, World
from bench.results import Figure

_TIMEOUT_SECONDS = 300
_ADOPTED = "/config/users/user-0"
# Above the contract, so that it is restored at once, and a login that must stay
_ADOPTED_VALUE = (
    b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2FsdA==","producer_byte_rate":"9000000"}}'
)


def deletion(on: World, entities: int) -> list[Figure]:
    """Delete a policy with `entities` quotas in force, one of them adopted from another writer.

    What is left is counted in ZooKeeper: quotas that did not go back, records of the ledger, the
    claim.
    """
    on.zookeeper.create(_ADOPTED, _ADOPTED_VALUE, makepath=True)
    cold(on, entities, deletion="Restore")
    started = time.monotonic()
    on.delete("brokerbandwidthpolicies", POLICY)
    on.wait(partial(_is_gone, on), "the policy to go", timeout_seconds=_TIMEOUT_SECONDS)
    seconds = time.monotonic() - started
    what = f"policy of {entities} quotas deleted"
    return [
        Figure(f"{what}: it is gone", seconds, "s", None),
        Figure(f"{what}: quotas, ledger records and claims left", _left(on), "nodes", 0),
    ]


def _is_gone(on: World) -> bool:
    try:
        on.read("brokerbandwidthpolicies", POLICY)
    except ApiException as error:
        if error.status == 404:
            return True
        raise
    return False


def _left(on: World) -> int:
    users = [f"/config/users/{user}" for user in on.zookeeper.get_children("/config/users")]
    quotas = [path for path in users if path != _ADOPTED and b"byte_rate" in _data(on, path)]
    changed = [] if _data(on, _ADOPTED) == _ADOPTED_VALUE else [_ADOPTED]
    records = _children(on, "/tidegate/ledger")
    claims = [path for path in ("/tidegate/claim",) if on.zookeeper.exists(path)]
    return len(quotas) + len(changed) + len(records) + len(claims)


def _data(on: World, path: str) -> bytes:
    return bytes(on.zookeeper.get(path)[0])


def _children(on: World, path: str) -> list[str]:
    try:
        return list(on.zookeeper.get_children(path))
    except NoNodeError:
        return []
