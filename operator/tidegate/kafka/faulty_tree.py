"""A tree of znodes with bad luck on demand, around any other tree: for tests of what a broken connection leaves behind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from controller_logic.reasons import Reason
from tidegate.errors import OutcomeUnknown, TidegateError, Unreachable
from tidegate.kafka.znodes import Acl, Operation, Znode, ZnodeTree


@dataclass
class FaultyTree:
    """Passes everything on to `inner`, unless a fault was ordered. `commits` counts the transactions that were done."""

    inner: ZnodeTree
    commits: int = 0
    _faults: list[TidegateError] = field(default_factory=list)
    _lost_before: int = 0
    _lost_after: int = 0
    _closed: bool = False

    @property
    def address(self) -> str:
        """See ZnodeTree."""
        return self.inner.address

    def fail_next(self, error: TidegateError) -> None:
        """Let the next request raise `error` instead of being done; several queue up."""
        self._faults.append(error)

    def lose_connection_before_commit(self) -> None:
        """Let the next transaction be lost on its way: not done, outcome unknown."""
        self._lost_before += 1

    def lose_connection_after_commit(self) -> None:
        """Let the next transaction's answer be lost: done, outcome unknown."""
        self._lost_after += 1

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """See ZnodeTree."""
        self._answer()
        return self.inner.read(paths)

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """See ZnodeTree."""
        self._answer()
        return self.inner.children(paths)

    def acls(self, paths: Sequence[str]) -> list[Acl | None]:
        """See ZnodeTree."""
        self._answer()
        return self.inner.acls(paths)

    def commit(self, operations: Sequence[Operation]) -> None:
        """See ZnodeTree."""
        self._answer()
        if self._lost_before:
            self._lost_before -= 1
            raise OutcomeUnknown("the test cut the connection before the transaction")
        self.inner.commit(operations)
        self.commits += 1
        if self._lost_after:
            self._lost_after -= 1
            raise OutcomeUnknown("the test cut the connection after the transaction")

    def sync(self) -> None:
        """See ZnodeTree."""
        self._answer()
        self.inner.sync()

    def watch(self, wake: Callable[[], None]) -> None:
        """See ZnodeTree."""
        self._answer()
        self.inner.watch(wake)

    def close(self) -> None:
        """See ZnodeTree."""
        self._closed = True
        self.inner.close()

    def _answer(self) -> None:
        if self._closed:
            raise Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "The session with ZooKeeper was closed.")
        if self._faults:
            raise self._faults.pop(0)
