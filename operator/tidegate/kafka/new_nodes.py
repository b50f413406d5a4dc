"""Making znodes with the parents they lack, each with the access control list of its parent.

A node that brokers may not read keeps them from starting, and one that everybody may read gives SCRAM credentials away, so an access
list is never chosen here: it is copied from the nearest node that Kafka made. Our own tree takes that of `/config/users`, the strictest.
Parents are made with null data, as Kafka does it.
"""

from collections.abc import Mapping

from controller_logic.reasons import Reason
from tidegate.errors import WriteRefused
from tidegate.kafka.ledger import ROOT
from tidegate.kafka.zookeeper.tree import Acl, Create, ZnodeTree

_ACL_MODELS = {ROOT: "/config/users"}


def plan_creates(tree: ZnodeTree, wanted: Mapping[str, bytes | None]) -> list[Create]:
    """Creates for the `wanted` nodes, which do not exist, and for every missing ancestor; parents before children."""
    ancestors = {ancestor: None for path in wanted for ancestor in _ancestors(path) if ancestor not in wanted}
    found = tree.read(list(ancestors))
    missing = [path for path, node in zip(ancestors, found, strict=True) if node is None]
    made: dict[str, bytes | None] = {**dict.fromkeys(missing), **wanted}
    acls = acls_for(tree, made)
    return [Create(path, made[path], acls[path]) for path in sorted(made, key=lambda path: (path.count("/"), path))]


def acls_for(tree: ZnodeTree, made: Mapping[str, object]) -> dict[str, Acl]:
    """For each path that is to be made, the access list of its nearest ancestor that exists."""
    models = {path: _model(path, made) for path in made}
    sources = sorted(set(models.values()))
    found = dict(zip(sources, tree.acls(sources), strict=True))
    acls: dict[str, Acl] = {}
    for path, model in models.items():
        acl = found[model]
        if acl is None:
            raise WriteRefused(
                Reason.WRONG_CLUSTER,
                f"{model} does not exist at ZooKeeper {tree.address}, so there is no running Kafka below it and nothing is written. "
                "Check the path after the host names (Kafka's zookeeper.connect has the same one).",
            )
        acls[path] = acl
    return acls


def _model(path: str, made: Mapping[str, object]) -> str:
    parent = _ACL_MODELS.get(path) or path.rpartition("/")[0]
    return _model(parent, made) if parent in made else parent


def _ancestors(path: str) -> list[str]:
    steps = path.split("/")[1:-1]
    return ["/" + "/".join(steps[: depth + 1]) for depth in range(len(steps))]
