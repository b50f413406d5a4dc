"""What each viewer may see, ready for pages: looked up without waiting, asked for in threads.

A page is kept up on the event loop that answers everybody, so it never waits for the API server: it
uses the rights that were answered last, and has them asked for again when they are a minute old.
While the API server does not answer they are used for up to ten minutes, and pages say so: nobody
can be given or denied a right meanwhile, and an outage is when people look.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tidegate.console.access import Refused, TooManyUnknown, Viewer
from tidegate.errors import RetryLater, TidegateError
from tidegate.kube.api import ResourceKind

Place = tuple[ResourceKind, str]  # a kind in a namespace; "" = in every one
_AGAIN_SECONDS: Final = 50.0  # before Access's own answers are too old for the next look
LONGEST_MINUTES: Final = 10
_LONGEST_SECONDS: Final = 60.0 * LONGEST_MINUTES
_AWAY_SECONDS: Final = 5.0  # between two tries while the API server does not answer
_MOST_KEPT: Final = 1_000


class Reviews(Protocol):
    """Whose a token is and what they may list, as `access.Access` asks for it. Both may wait."""

    def viewer(self, token: str | None) -> Viewer: ...

    def may_list(self, viewer: Viewer, kind: ResourceKind, namespace: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rights:
    """What one viewer may list, of the places that were asked about.

    `at_seconds` is when all of it was answered last (monotonic); `problem` says why not since, "" =
    it was.
    """

    allowed: frozenset[Place]
    asked: frozenset[Place]
    at_seconds: float
    problem: str = ""

    def may_list(self, kind: ResourceKind, namespace: str) -> bool:
        return (kind, namespace) in self.allowed


class Viewers:
    """The rights of those who look. `places` are those that they may want to see by now."""

    def __init__(
        self,
        reviews: Reviews,
        places: Callable[[], frozenset[Place]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reviews = reviews
        self._places = places
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Rights | Refused] = OrderedDict()
        self._asking: set[str] = set()
        self._away_until = float("-inf")

    def rights(self, token: str | None) -> Rights:
        """Ask, where what is kept is too old. May wait; raises Refused and from tidegate.errors."""
        settled = self.settled(token)
        if settled is not None:
            return settled
        key = _digest(token)
        kept, places = self._usable(key), self._places()
        try:
            viewer = self.reviews.viewer(token)
            allowed = frozenset(one for one in places if self.reviews.may_list(viewer, *one))
        except TooManyUnknown:
            if kept is None:
                raise
            return kept
        except Refused as refused:
            if kept is not None:  # an unknown token has nothing that a page could use
                self._keep(key, refused)
            raise
        except RetryLater as error:
            self._away_until = self._monotonic() + _AWAY_SECONDS
            if kept is None:
                raise
            found = replace(kept, problem=error.message)
        except TidegateError:  # the console's own rights, for one: nothing is known then
            self._drop(key)
            raise
        else:
            self._away_until = float("-inf")
            found = Rights(allowed, places, self._monotonic())
        self._keep(key, found)
        return found

    def settled(self, token: str | None) -> Rights | None:
        """What need not be asked for again now; None = it has to be. Never waits."""
        kept = self._usable(_digest(token))
        if kept is None:
            return None
        is_current = self._is_fresh(kept) and self._places() <= kept.asked
        return kept if is_current or self._monotonic() < self._away_until else None

    def known(self, token: str | None, asks: Executor) -> Rights | None:
        """What is known by now, None = nothing. Never waits: where that is old, `asks` does.

        Raises Refused where the token ended.
        """
        key = _digest(token)
        with self._lock:
            kept = self._kept.get(key)
        if isinstance(kept, Refused):
            raise kept
        usable = self._usable(key)
        is_current = (
            usable is not None and self._is_fresh(usable) and self._places() <= usable.asked
        )
        if not is_current and self._monotonic() >= self._away_until:
            with self._lock:
                is_first = key not in self._asking
                self._asking.add(key)
            if is_first:
                asks.submit(self._ask, key, token)
        return usable

    def age_seconds(self, rights: Rights) -> float:
        return self._monotonic() - rights.at_seconds

    def _ask(self, key: str, token: str | None) -> None:
        try:
            self.rights(token)
        except TooManyUnknown:
            pass
        except Refused as refused:
            self._keep(key, refused)
        except TidegateError:
            pass  # the page says that nothing is known; it is asked again with the next look
        finally:
            with self._lock:
                self._asking.discard(key)

    def _is_fresh(self, rights: Rights) -> bool:
        return not rights.problem and self.age_seconds(rights) <= _AGAIN_SECONDS

    def _usable(self, key: str) -> Rights | None:
        with self._lock:
            kept = self._kept.get(key)
        if not isinstance(kept, Rights) or self.age_seconds(kept) > _LONGEST_SECONDS:
            return None
        return kept

    def _keep(self, key: str, found: Rights | Refused) -> None:
        with self._lock:
            self._kept[key] = found
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)

    def _drop(self, key: str) -> None:
        with self._lock:
            self._kept.pop(key, None)


def _digest(token: str | None) -> str:
    return hashlib.sha256((token or "").encode(errors="surrogateescape")).hexdigest()
