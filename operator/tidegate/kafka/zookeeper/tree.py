"""The interface of a tree of znodes: reads in bulk, and writes by transactions only.

A transaction compares versions first. ZooKeeper (`session`) and the in-memory tree of the tests
implement it. All paths are below the chroot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tidegate.errors import Conflict

MOST_REQUEST_BYTES = 700_000  # ZooKeeper closes the connection at 1,048,575


@dataclass(frozen=True, slots=True)
class Znode:
    """One node as it was read.

    `data` None is ZooKeeper's null, which is not the same as zero bytes. `changed_by` is the id of
    the transaction that wrote the data last (mzxid); what one transaction wrote has the same.
    """

    data: bytes | None
    version: int
    child_count: int
    changed_by: int = field(default=0, compare=False)  # not known of what is only planned


@dataclass(frozen=True, slots=True)
class AclEntry:
    """One right in an access control list: permission bits, and whom they are for."""

    permissions: int
    scheme: str
    identity: str


Acl = tuple[AclEntry, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node that must not exist; its parent must."""

    path: str
    data: bytes | None
    acl: Acl


@dataclass(frozen=True, slots=True)
class CreateSequential:
    """Make a node whose name is `path` followed by the parent's next number, in ten digits."""

    path: str
    data: bytes
    acl: Acl


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data of a node that still has this version."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node that still has this version and no children."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Demand that a node still has this version."""

    path: str
    version: int


Operation = Create | CreateSequential | SetData | Delete | Check


class Failure(StrEnum):
    """Why a transaction was rejected."""

    BAD_VERSION = "another version"
    NODE_EXISTS = "the node exists already"
    NO_NODE = "the node or its parent does not exist"
    NOT_EMPTY = "the node has children"


class Rejected(Conflict):
    """A transaction that compared and lost: nothing was done. `operation` failed first."""

    def __init__(self, operation: Operation, failure: Failure) -> None:
        super().__init__(f"{operation.path}: {failure.value}")
        self.operation = operation
        self.failure = failure


class ZnodeTree(Protocol):
    """Bulk reads and transactions on one ZooKeeper, each call bounded in time.

    Every call raises Unreachable when no answer comes and Unauthorized when the identity may not do
    it.
    """

    @property
    def address(self) -> str:
        """The connect string with its chroot, for messages."""
        ...

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """The nodes in the order of `paths`; None if there is no node. No paths, no request."""
        ...

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The child names of each path, in no certain order; None if there is no node."""
        ...

    def acls(self, paths: Sequence[str]) -> list[Acl | None]:
        """The access control list of each path; None if there is no node."""
        ...

    def commit(self, operations: Sequence[Operation]) -> None:
        """Do all or nothing.

        Raises Rejected when a comparison failed, OutcomeUnknown when the connection broke
        meanwhile.
        """
        ...

    def sync(self) -> None:
        """Wait until reads here see everything that was committed anywhere before this call."""
        ...

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake`, never blocking, when `/controller` or `/brokers/ids` may have changed.

        Of `/brokers/ids` the children count.
        """
        ...

    def close(self) -> None:
        """End the session; later calls raise Unreachable. A second call does nothing."""
        ...
