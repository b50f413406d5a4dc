"""Operations as kazoo's requests, and the one failure hidden in the list of results that kazoo returns instead of raising."""

from collections.abc import Sequence

from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)
from kazoo.protocol.serialization import CheckVersion
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.serialization import Delete as DeleteRequest
from kazoo.protocol.serialization import SetData as SetDataRequest
from kazoo.security import ACL, Id

from tidegate.kafka.zookeeper.tree import Acl, Check, Create, CreateSequential, Delete, Failure, Operation, Rejected, SetData

_PERSISTENT, _PERSISTENT_SEQUENTIAL = 0, 2
_FAILURES = {
    BadVersionError: Failure.BAD_VERSION,
    NodeExistsError: Failure.NODE_EXISTS,
    NoNodeError: Failure.NO_NODE,
    NotEmptyError: Failure.NOT_EMPTY,
}


def requests(operations: Sequence[Operation], chroot: str) -> list[object]:
    """kazoo's request for each operation; made here because kazoo's own builder cannot send null data."""
    return [_request(operation, f"{chroot}{operation.path}") for operation in operations]


def first_failure(operations: Sequence[Operation], results: Sequence[object]) -> Rejected | NoAuthError | ZookeeperError | None:
    """Why the transaction was not done; None = it was. All results but the culprit's only say that nothing was done."""
    errors = [(operation, result) for operation, result in zip(operations, results, strict=False) if isinstance(result, ZookeeperError)]
    for operation, error in errors:
        if type(error) in _FAILURES:
            return Rejected(operation, _FAILURES[type(error)])
        if not isinstance(error, RolledBackError | RuntimeInconsistency):
            error.args = (operation.path,)
            return error
    return errors[0][1] if errors else None


def _request(operation: Operation, path: str) -> object:
    match operation:
        case Create(_, data, acl):
            return CreateRequest(path, data, _kazoo_acl(acl), _PERSISTENT)
        case CreateSequential(_, data, acl):
            return CreateRequest(path, data, _kazoo_acl(acl), _PERSISTENT_SEQUENTIAL)
        case SetData(_, data, version):
            return SetDataRequest(path, data, version)
        case Delete(_, version):
            return DeleteRequest(path, version)
        case Check(_, version):
            return CheckVersion(path, version)


def _kazoo_acl(acl: Acl) -> list[ACL]:
    return [ACL(entry.permissions, Id(entry.scheme, entry.identity)) for entry in acl]
