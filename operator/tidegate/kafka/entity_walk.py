"""Finding every quota entity that Kafka has a node for, in four bulk requests however many there are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller_logic.model import Entity
from tidegate.errors import ForeignContent
from tidegate.kafka.names import CONFIG_ROOT, entity_of_path
from tidegate.kafka.zookeeper.tree import ZnodeTree


@dataclass(frozen=True, slots=True)
class EntityWalk:
    """The entities that have a node, and the paths of nodes whose names stand for no entity."""

    entities: tuple[Entity, ...]
    unreadable: tuple[str, ...]


def walk_entities(tree: ZnodeTree) -> EntityWalk:
    """Walk users, clients and the clients of users; a node that vanishes meanwhile is left out."""
    users, clients = (names or [] for names in tree.children([f"{CONFIG_ROOT}/users", f"{CONFIG_ROOT}/clients"]))
    paths = [*(f"users/{name}" for name in users), *(f"clients/{name}" for name in clients)]
    paths += _clients_of_users(tree, users)
    return _told_apart(paths)


def walk_client_ids(tree: ZnodeTree) -> tuple[Entity, ...]:
    """The client ids without a user that have a node; names that stand for no entity are left out."""
    (names,) = tree.children([f"{CONFIG_ROOT}/clients"])
    return _told_apart(f"clients/{name}" for name in names or []).entities


def _told_apart(paths: Iterable[str]) -> EntityWalk:
    entities: list[Entity] = []
    unreadable: list[str] = []
    for path in sorted(paths):
        try:
            entities.append(entity_of_path(path))
        except ForeignContent:
            unreadable.append(f"{CONFIG_ROOT}/{path}")
    return EntityWalk(tuple(entities), tuple(unreadable))


def _clients_of_users(tree: ZnodeTree, users: Sequence[str]) -> Iterable[str]:
    nodes = tree.read([f"{CONFIG_ROOT}/users/{user}" for user in users])
    parents = [user for user, node in zip(users, nodes, strict=True) if node is not None and node.child_count]
    below = tree.children([f"{CONFIG_ROOT}/users/{user}/clients" for user in parents])
    return [f"users/{user}/clients/{name}" for user, names in zip(parents, below, strict=True) for name in names or ()]
