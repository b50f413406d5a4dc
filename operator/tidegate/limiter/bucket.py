"""A token bucket with priorities, as arithmetic: time is passed in, and nothing runs by itself.

Tokens are bytes. They come at the boundaries of a grid, `refill_seconds` apart, and are worked out
when someone asks. A request that finds enough tokens, and nobody waiting, takes them. Otherwise it
waits, and each refill is reserved for those who wait:

- A tier's minimum share goes to that tier, then everything else to the most important tier that
  waits.
- Within a tier, keys take turns of `quantum_bytes`, so that a large request of one key does not
  hold up small ones of others. Requests of one key keep their order.
- A request completes, as a whole, in the refill that reserves its last byte. One that is overtaken
  keeps what is reserved for it.

So no refill is lost while anyone waits, and none is used twice: what completes within any time is
at most the rate times that time, plus the burst, plus one request per tier and key that was
reserved for before.

Tier 0 never waits. It pays with a debt that the next refills settle before anyone else has any of
them. What a refill cannot settle is carried over, but never more than `debt_seconds` of the rate:
beyond that tier 0's excess is forgotten, because a longer debt would stop the other tiers long
after an overload has ended.
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

TIERS = (0, 1, 2, 3)

Notify = Callable[["Ticket"], object]


@dataclass(slots=True, eq=False)
class Ticket:
    """One request: `size_bytes` of `tier`, made at `since_seconds`.

    `left_bytes` are not reserved yet. `done_seconds` is when it completed, None while it waits.
    """

    size_bytes: int
    tier: int
    key: Hashable
    since_seconds: float
    left_bytes: float
    notify: Notify | None = None
    done_seconds: float | None = None


@dataclass(slots=True)
class _Turn:
    """The requests of one key, and how much of its turn is left."""

    key: Hashable
    turn_bytes: float
    requests: deque[Ticket] = field(default_factory=deque)


class _Queue:
    """Those who wait in one tier, by key; the key whose turn it is first."""

    __slots__ = ("_by_key", "_quantum_bytes", "_turns", "waiting")

    def __init__(self, quantum_bytes: int) -> None:
        self.waiting = 0
        self._quantum_bytes = quantum_bytes
        self._turns: deque[_Turn] = deque()
        self._by_key: dict[Hashable, _Turn] = {}

    def add(self, ticket: Ticket) -> None:
        turn = self._by_key.get(ticket.key)
        if turn is None:
            turn = self._by_key[ticket.key] = _Turn(ticket.key, self._quantum_bytes)
            self._turns.append(turn)
        turn.requests.append(ticket)
        self.waiting += 1

    def remove(self, ticket: Ticket) -> None:
        turn = self._by_key[ticket.key]
        turn.requests.remove(ticket)
        self.waiting -= 1
        if not turn.requests:
            del self._by_key[ticket.key]
            self._turns.remove(turn)

    def tickets(self) -> list[Ticket]:
        return [ticket for turn in self._turns for ticket in turn.requests]

    def oldest_seconds(self) -> float | None:
        """When the request was made that has waited longest; None = nobody waits."""
        return min((turn.requests[0].since_seconds for turn in self._turns), default=None)

    def reserve(self, tokens: float, now_seconds: float, done: list[Ticket]) -> float:
        """Reserve these tokens for those who wait, in turns; returns what nobody needs."""
        turns = self._turns
        while turns and tokens > 0:
            turn = turns[0]
            head = turn.requests[0]
            if head.left_bytes <= tokens and head.left_bytes <= turn.turn_bytes:
                part = head.left_bytes
                head.left_bytes, head.done_seconds = 0, now_seconds
                turn.requests.popleft()
                self.waiting -= 1
                done.append(head)
            else:
                part = min(tokens, turn.turn_bytes)
                head.left_bytes -= part
            tokens -= part
            turn.turn_bytes -= part
            if not turn.requests:
                turns.popleft()
                del self._by_key[turn.key]
            elif turn.turn_bytes <= 0:
                turn.turn_bytes = self._quantum_bytes
                turns.rotate(-1)
        return tokens


class Bucket:
    """The bucket at `now_seconds`, full. Times are seconds on one clock that never goes back.

    `burst_seconds` and `debt_seconds` are how much of the rate the bucket holds, and how much debt
    of tier 0 outlasts a refill; None = one refill, for both. `minimum_shares` is how much of each
    refill, after tier 0's debt, goes to a tier that waits, as shares of 1 by tier.

    Raises ValueError for a rate or time that is not positive, for shares of another tier than 1 to
    3, and for shares that are more than 1 together.
    """

    __slots__ = (
        *("_burst_seconds", "_debt_seconds", "_freed_bytes", "_minimums", "_queues", "_refills"),
        *("_start_seconds", "burst_bytes", "debt_bytes", "next_seconds", "rate", "refill_bytes"),
        *("refill_seconds", "tokens", "waiting"),
    )

    def __init__(
        self,
        bytes_per_second: float,
        *,
        now_seconds: float = 0.0,
        refill_seconds: float = 0.01,
        burst_seconds: float | None = None,
        debt_seconds: float | None = None,
        minimum_shares: Mapping[int, float] | None = None,
        quantum_bytes: int = 64 * 1024,
    ) -> None:
        shares = dict(minimum_shares or {})
        if not refill_seconds > 0 or quantum_bytes <= 0:
            raise ValueError("a refill's time and a key's turn must be more than 0")
        if not set(shares) <= set(TIERS[1:]) or min(shares.values(), default=0) < 0:
            raise ValueError("minimum shares are of tiers 1 to 3, and none is below 0")
        if sum(shares.values()) > 1:
            raise ValueError("minimum shares must not be more than 1 together")
        self.refill_seconds = refill_seconds
        self._burst_seconds = max(burst_seconds or 0.0, refill_seconds)
        self._debt_seconds = refill_seconds if debt_seconds is None else debt_seconds
        self._minimums = [(tier, share) for tier, share in sorted(shares.items()) if share > 0]
        self._queues: Sequence[_Queue] = [_Queue(quantum_bytes) for _ in TIERS]
        self.waiting = 0
        self._start_seconds = now_seconds
        self._refills = 0
        self._freed_bytes = 0.0
        self.next_seconds = now_seconds + refill_seconds  # nobody who waits is done before it
        self._set_rate(bytes_per_second)
        self.tokens = self.burst_bytes

    def set_rate(self, bytes_per_second: float, now_seconds: float) -> list[Ticket]:
        """Change the rate, for those who wait already as well; returns who was done before.

        Raises ValueError for a rate that is not more than 0.
        """
        done = self.advance(now_seconds)
        self._set_rate(bytes_per_second)
        self.tokens = max(-self.debt_bytes, min(self.burst_bytes, self.tokens))
        return done

    def take(self, size_bytes: int, tier: int) -> bool:
        """Take tokens now, or none: then nobody waits for them.

        Call `advance` before, once `next_seconds` has come. 0 bytes go whenever nobody waits, and
        always in tier 0. Raises ValueError for less than 0 bytes, and for a tier that is not there.
        """
        if size_bytes < 0 or tier not in TIERS:
            raise ValueError("a request is for 0 bytes or more, in one of tiers 0 to 3")
        if tier == 0:
            self.tokens -= size_bytes
            return True
        if self.waiting or self.tokens < size_bytes:
            return False
        self.tokens -= size_bytes
        return True

    def put(
        self,
        size_bytes: int,
        tier: int,
        now_seconds: float,
        *,
        key: Hashable = None,
        notify: Notify | None = None,
    ) -> Ticket:
        """Take tokens, or wait for them; a ticket with a `done_seconds` has them.

        Call `advance` before, once `next_seconds` has come. Raises ValueError as `take` does.
        """
        ticket = Ticket(size_bytes, tier, key, now_seconds, size_bytes, notify)
        if self.take(size_bytes, tier):
            ticket.left_bytes, ticket.done_seconds = 0, now_seconds
            return ticket
        queue = self._queues[tier]
        queue.add(ticket)
        if self.tokens > 0:  # what is left of this refill, since nobody waited for it
            self.tokens = queue.reserve(self.tokens, now_seconds, [])
        self.waiting += 1
        return ticket

    def cancel(self, ticket: Ticket) -> bool:
        """Give up a request and what is reserved for it; False = it was done already."""
        if ticket.done_seconds is not None:
            return False
        self._queues[ticket.tier].remove(ticket)
        self.waiting -= 1
        self._freed_bytes += ticket.size_bytes - ticket.left_bytes
        return True

    def cancel_all(self) -> list[Ticket]:
        """Give up every request that waits; returns them."""
        waiting = [ticket for queue in self._queues for ticket in queue.tickets()]
        for ticket in waiting:
            self.cancel(ticket)
        return waiting

    def advance(self, now_seconds: float) -> list[Ticket]:
        """Count the refills until now; returns who is done, in order, each with its time."""
        done: list[Ticket] = []
        while now_seconds >= self.next_seconds:
            refills = (
                1
                if self.waiting
                else int((now_seconds - self.next_seconds) / self.refill_seconds) + 1
            )
            self._refills += refills
            at_seconds = self._start_seconds + self._refills * self.refill_seconds
            self.next_seconds = self._start_seconds + (self._refills + 1) * self.refill_seconds
            self.tokens += refills * self.refill_bytes
            self.tokens = max(-self.debt_bytes, min(self.burst_bytes, self.tokens))
            if self.waiting:
                self.tokens += self._freed_bytes
            self._freed_bytes = 0.0
            if self.waiting and self.tokens > 0:
                self._reserve(at_seconds, done)
        return done

    def waiting_in(self, tier: int) -> int:
        """How many requests of a tier wait."""
        return self._queues[tier].waiting

    def oldest_seconds(self, tier: int) -> float | None:
        """When the request of a tier was made that has waited longest; None = nobody waits."""
        return self._queues[tier].oldest_seconds()

    def _set_rate(self, bytes_per_second: float) -> None:
        if not bytes_per_second > 0:
            raise ValueError("the rate must be more than 0 bytes per second")
        self.rate = bytes_per_second
        self.refill_bytes = bytes_per_second * self.refill_seconds
        self.burst_bytes = bytes_per_second * self._burst_seconds
        self.debt_bytes = bytes_per_second * self._debt_seconds

    def _reserve(self, now_seconds: float, done: list[Ticket]) -> None:
        before, tokens = len(done), self.tokens
        for tier, share in self._minimums:
            part = tokens * share
            self.tokens -= part - self._queues[tier].reserve(part, now_seconds, done)
        for queue in self._queues:
            if queue.waiting:
                self.tokens = queue.reserve(self.tokens, now_seconds, done)
        self.waiting -= len(done) - before
