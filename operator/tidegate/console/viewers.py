"""What each viewer may see, ready for pages: looked up without waiting, asked for in threads.

A page is kept up on the event loop that answers everyone, so it never waits for the API server: it
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

from tidegate.console.access import KEPT_SECONDS, Refused, TooManyUnknown, Viewer
from tidegate.errors import RetryLater, TidegateError
from tidegate.kube.api import ResourceKind

Place = tuple[ResourceKind, str]  # a kind in a namespace; "" = in every one
_UNASKED_SECONDS: Final = 55.0  # the longest that a right which was taken away is not asked about
_AGAIN_SECONDS: Final = _UNASKED_SECONDS - KEPT_SECONDS
LONGEST_MINUTES: Final = 10
_LONGEST_SECONDS: Final = 60.0 * LONGEST_MINUTES
_TRY_SECONDS: Final = 5.0  # between two tries while the API server does not answer
_AWAY_SECONDS: Final = 30.0  # for so long after such a try no page that is opened waits for another
_MOST_KEPT: Final = 1_000


class Reviews(Protocol):
    """Whose a token is and what they may list, as `access.Access` asks for it. Both may wait."""

    def viewer(self, token: str | None) -> Viewer: ...

    def may_list(self, viewer: Viewer, kind: ResourceKind, namespace: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rights:
    """What one viewer may list, of the places that were asked about.

    `at_seconds` is when all of it was asked for last (monotonic), and answered; `problem` says why
    not when it was tried last, at `failed_seconds`, "" = it was.
    """

    allowed: frozenset[Place]
    asked: frozenset[Place]
    at_seconds: float
    problem: str = ""
    failed_seconds: float = float("-inf")

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

    def rights(self, token: str | None) -> Rights:
        """Ask, where what is kept is too old. May wait; raises Refused and from tidegate.errors."""
        settled = self.settled(token)
        return self._asked(token) if settled is None else settled

    def _asked(self, token: str | None) -> Rights:
        key = _digest(token)
        kept, places, begin_seconds = self._usable(key), self._places(), self._monotonic()
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
            if kept is None:
                raise
            # of this viewer alone: with a token that takes long to review, a stranger must not put
            # off when others are asked about
            found = replace(kept, problem=error.message, failed_seconds=self._monotonic())
        except TidegateError:  # the console's own rights, for one: nothing is known then
            self._drop(key)
            raise
        else:
            found = Rights(allowed, places, begin_seconds)
        self._keep(key, found)
        return found

    def settled(self, token: str | None) -> Rights | None:
        """What need not be asked for again now; None = it has to be. Never waits.

        A page opens with it while the API server is unreachable; `known` then asks again.
        """
        kept = self._usable(_digest(token))
        if kept is None:
            return None
        has_just_failed = self._monotonic() - kept.failed_seconds < _AWAY_SECONDS
        return kept if has_just_failed or self._is_current(kept) else None

    def known(self, token: str | None, asks: Executor) -> Rights | None:
        """What is known by now, None = nothing. Never waits: where that is old, `asks` does.

        Raises Refused if the token ended.
        """
        key = _digest(token)
        with self._lock:
            kept = self._kept.get(key)
        if isinstance(kept, Refused):
            raise kept
        is_tried = kept is not None and self._monotonic() - kept.failed_seconds < _TRY_SECONDS
        if not is_tried and (kept is None or not self._is_current(kept)):
            with self._lock:
                is_first = key not in self._asking
                self._asking.add(key)
            if is_first:
                asks.submit(self._ask, key, token)
        return self._usable(key)

    def age_seconds(self, rights: Rights) -> float:
        return self._monotonic() - rights.at_seconds

    def _ask(self, key: str, token: str | None) -> None:
        try:
            self._asked(token)
        except TooManyUnknown:
            pass
        except Refused as refused:
            self._keep(key, refused)
        except TidegateError:
            pass  # the page says that nothing is known; it is asked again with the next look
        finally:
            with self._lock:
                self._asking.discard(key)

    def _is_current(self, rights: Rights) -> bool:
        is_fresh = not rights.problem and self.age_seconds(rights) <= _AGAIN_SECONDS
        return is_fresh and self._places() <= rights.asked

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
