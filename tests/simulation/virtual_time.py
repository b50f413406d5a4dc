"""Virtual time: threads, locks and pools of the operator under one scheduler that a seed decides.

Each thread of the operator is a greenlet here, with a stack of its own, and exactly one runs at any
moment: it gives the turn away when it waits for something, and the clock jumps to whatever is due
next. Ties are broken by the seed. So a run of a quarter of an hour takes milliseconds, and the same
seed gives the same run, step by step.

`VirtualThreading` and the pools have the names and the arguments of `threading` and
`concurrent.futures` that the operator uses.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet


class Killed(BaseException):
    """The process is gone. Nothing may catch this."""


class Stuck(Exception):
    """The run takes too many steps: something goes round in circles without waiting."""


class Group:
    """The threads of one operating system process. `is_dead`: they unwind and do nothing more."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.threads: list[VirtualThread] = []
        self.wall_offset_seconds = 0.0
        self.paused_until = 0.0


class _Hand:
    """A greenlet that runs one virtual thread after the other: making one costs ten turns."""

    idle: ClassVar[list[_Hand]] = []

    def __init__(self) -> None:
        self.greenlet = greenlet(self._run)
        self.work: Callable[[], greenlet] = getcurrent

    def _run(self, *_: object) -> None:
        while True:
            following = self.work()
            _Hand.idle.append(self)
            following.switch()


class Scheduler:
    """The clock, the order of all that happens, and whose turn it is.

    `now` are monotonic seconds. The thread that makes it is the world's own, without a group.
    """

    def __init__(self, seed: int, *, most_steps: int = 300_000) -> None:
        self.random = Random(seed)
        self._tie = self.random.random
        self.now = 1_000.0
        self.steps = 0
        self.errors: list[BaseException] = []
        self._most_steps = most_steps
        self._due: list[tuple[float, float, int, Any, int]] = []
        self._count = 0
        self.world = VirtualThread(lambda: None, name="world", scheduler=self, group=Group("world"))
        self.current: VirtualThread = self.world

    @property
    def group(self) -> Group:
        return self.current.group

    def at(self, seconds: float, what: Callable[[], None] | VirtualThread, token: int = 0) -> None:
        """Have `what` run at this time: a call that waits for nothing, or the turn of a thread."""
        self._count += 1
        if seconds < self.now:
            seconds = self.now
        heapq.heappush(self._due, (seconds, self._tie(), self._count, what, token))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + seconds, what)

    def sleep(self, seconds: float) -> None:
        """Let time pass for the present thread, and others run meanwhile."""
        self.park(seconds)

    def park(self, seconds: float | None) -> bool:
        """Give the turn away until `unpark` (True), or until the time is over (False)."""
        me = self.current
        me.require_alive()
        me.token += 1
        me.is_unparked = False
        if seconds is not None:
            self.at(self.now + seconds, me, me.token)
        me.is_parked = True
        self._give_turn(me)
        me.is_parked = False
        me.require_alive()
        return me.is_unparked

    def unpark(self, thread: VirtualThread) -> None:
        if thread.is_parked and not thread.is_unparked:
            thread.is_unparked = True
            thread.token += 1
            self.at(self.now, thread, thread.token)

    def kill(self, group: Group) -> None:
        """End a process: each thread of it ends where it is, and nothing that it asks for is done."""
        group.is_dead = True
        for thread in group.threads:
            thread.token += 1
            if thread.is_parked:
                self.at(self.now, thread, thread.token)

    def pause(self, group: Group, seconds: float) -> None:
        """Let no thread of a process have a turn for a while, as when its machine stands still."""
        group.paused_until = self.now + seconds

    def run_until(self, seconds: float) -> None:
        """Let everything run that is due until then. For the world's own thread."""
        if seconds > self.now:
            self.park(seconds - self.now)

    def after_end_of(self, thread: VirtualThread) -> greenlet:
        """Whose turn it is after a thread that is over."""
        return self._next(thread).greenlet

    def _give_turn(self, me: VirtualThread) -> None:
        following = self._next(me)
        if following is not me:
            following.greenlet.switch()

    def _next(self, me: VirtualThread) -> VirtualThread:
        """Run the calls that are due, up to the next thread's turn."""
        while self._due:
            at, _, _, what, token = heapq.heappop(self._due)
            if isinstance(what, VirtualThread):
                if what.token != token or what.is_over:
                    continue
                if what.group.paused_until > at and not what.group.is_dead:
                    self.at(what.group.paused_until, what, token)
                    continue
                self._advance(at)
                self.current = what
                return what
            self._advance(at)
            before, self.current = self.current, self.world
            try:
                what()
            except BaseException as error:
                self.errors.append(error)
            finally:
                self.current = before
        raise Stuck(f"nothing is due any more, and {me.name} waits")

    def _advance(self, at: float) -> None:
        self.now = at
        self.steps += 1
        if self.steps > self._most_steps and self.world.is_parked:
            self.errors.append(Stuck(f"more than {self._most_steps} steps"))
            self._due = [(self.now, 0.0, 0, self.world, self.world.token)]


class VirtualThread:
    """One thread: of the operator, or of the world."""

    def __init__(
        self,
        target: Callable[..., Any],
        *,
        name: str,
        scheduler: Scheduler,
        group: Group,
        args: tuple[Any, ...] = (),
    ) -> None:
        self.name = name
        self.group = group
        self.greenlet = getcurrent()  # of the world; others have one from their start
        self.token = 0
        self.is_parked = False
        self.is_unparked = False
        self.is_over = False
        self._is_started = False
        self._target, self._args = target, args
        self._scheduler = scheduler
        self._joining: list[VirtualThread] = []

    def require_alive(self) -> None:
        if self.group.is_dead:
            raise Killed

    def start(self) -> None:
        self._scheduler.current.require_alive()
        self.group.threads.append(self)
        self._is_started = True
        self.is_parked = True
        hand = _Hand.idle.pop() if _Hand.idle else _Hand()
        hand.work, self.greenlet = self._run, hand.greenlet
        self._scheduler.at(self._scheduler.now, self, self.token)

    def join(self, timeout: float | None = None) -> None:
        scheduler = self._scheduler
        scheduler.current.require_alive()
        ends = None if timeout is None else scheduler.now + max(0.0, timeout)
        while self.is_alive() and (ends is None or scheduler.now < ends):
            self._joining.append(scheduler.current)
            scheduler.park(None if ends is None else ends - scheduler.now)

    def is_alive(self) -> bool:
        return self._is_started and not self.is_over

    def _run(self) -> greenlet:
        """Do the work; returns whose turn it is then."""
        self.is_parked = False
        try:
            if not self.group.is_dead:
                self._target(*self._args)
        except Killed:
            pass
        except BaseException as error:
            self._scheduler.errors.append(error)
        self.is_over = True
        self.group.threads.remove(self)
        for waiting in self._joining:
            self._scheduler.unpark(waiting)
        return self._scheduler.after_end_of(self)


# --- what the operator's modules know as `threading`, `time` and `concurrent.futures` -------------

_scheduler: Scheduler | None = None


def use(scheduler: Scheduler) -> None:
    """Let all virtual threads, locks and clocks from now on belong to this run."""
    global _scheduler
    _scheduler = scheduler


def running() -> Scheduler:
    assert _scheduler is not None
    return _scheduler


class _Waiters:
    """Threads that wait for one thing; a base of what they wait for, as there are very many."""

    _threads: deque[VirtualThread] | None = None

    def _wait(self, ends_at: float | None) -> bool:
        scheduler = running()
        me = scheduler.current
        if self._threads is None:
            self._threads = deque()
        threads = self._threads
        threads.append(me)
        try:
            return scheduler.park(None if ends_at is None else max(0.0, ends_at - scheduler.now))
        finally:
            if me in threads:
                threads.remove(me)

    def _wake(self) -> None:
        while self._threads:
            running().unpark(self._threads.popleft())


def _end_of(timeout: float | None) -> float | None:
    return None if timeout is None else running().now + timeout


class Lock(_Waiters):
    """`threading.Lock` and `RLock`."""

    def __init__(self) -> None:
        self._owner: VirtualThread | None = None
        self._depth = 0

    def acquire(self) -> bool:
        me = running().current
        while self._owner is not None and self._owner is not me:
            if self._owner.group.is_dead and self._owner.is_over:
                break
            self._wait(None)
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self.__exit__()

    def __enter__(self) -> bool:
        if self._owner is None:  # as nearly always
            self._owner, self._depth = running().current, 1
            return True
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._owner, self._depth = None, 0
            if self._threads:
                self._wake()


class Event(_Waiters):
    _is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._threads:
            self._wake()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        ends_at = _end_of(timeout)
        while not self._is_set:
            if not self._wait(ends_at) and not self._is_set:
                return False
        return True


class Condition(_Waiters):
    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing: only one thread runs, and it gives its turn away in `wait_for` only."""

    def notify_all(self) -> None:
        self._wake()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        ends_at = _end_of(timeout)
        while not predicate():
            if not self._wait(ends_at) and not predicate():
                return False
        return True


class Thread(VirtualThread):
    """`threading.Thread`, of the process that makes it."""

    def __init__(
        self,
        target: Callable[..., Any],
        name: str = "",
        args: tuple[Any, ...] = (),
        daemon: bool = True,
    ) -> None:
        super().__init__(target, name=name, scheduler=running(), group=running().group, args=args)


class Timer:
    def __init__(self, interval: float, function: Callable[[], None]) -> None:
        self._interval, self._function = interval, function
        self._cancelled = Event()
        self._thread: Thread | None = None
        self._is_over = False
        self.daemon = True

    def start(self) -> None:
        # a thread only once it is due: nearly all are cancelled
        running().after(self._interval, self._begin)
        self._group = running().group

    def _begin(self) -> None:
        if not self._cancelled.is_set() and not self._group.is_dead:
            self._thread = Thread(self._function, "timer")
            self._thread.group = self._group
            self._thread.start()

    def cancel(self) -> None:
        self._cancelled.set()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()


class Future:
    _value: Any = None
    _error: BaseException | None = None

    def __init__(self) -> None:
        self._done = Event()
        self._is_begun = False

    def run(self, work: Callable[[], Any]) -> None:
        if self._done.is_set():
            return
        self._is_begun = True
        try:
            self._value = work()
        except Exception as error:
            self._error = error
        self._done.set()

    def cancel(self) -> bool:
        if not self._is_begun:
            self._error = RuntimeError("cancelled")
            self._done.set()
        return not self._is_begun

    def wait(self, timeout: float | None) -> bool:
        return self._done.wait(timeout)

    def done(self) -> bool:
        return self._done.is_set()

    def result(self, timeout: float | None = None) -> Any:
        if not self._done.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value


class ThreadPoolExecutor:
    """Threads for work that waits; one ends when there is none left, so that few are alive."""

    def __init__(self, max_workers: int, thread_name_prefix: str = "") -> None:
        self._most, self._name = max_workers, thread_name_prefix
        self._group = running().group
        self._waiting: deque[tuple[Future, Callable[[], Any]]] = deque()
        self._threads: list[Thread] = []

    def submit(self, work: Callable[..., Any], *args: Any) -> Future:
        running().current.require_alive()
        future = Future()
        self._waiting.append((future, lambda: work(*args)))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) < self._most:
            thread = Thread(self._work, self._name)
            thread.group = self._group
            self._threads.append(thread)
            thread.start()
        return future

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        futures = [self.submit(work, item) for item in items]
        return iter([future.result() for future in futures])

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        if cancel_futures:
            while self._waiting:
                self._waiting.popleft()[0].cancel()
        if wait:
            for thread in list(self._threads):
                thread.join()

    def _work(self) -> None:
        while self._waiting:
            future, work = self._waiting.popleft()
            future.run(work)


def wait_for_all(futures: Iterable[Future], timeout: float | None = None) -> None:
    """`concurrent.futures.wait`."""
    ends_at = _end_of(timeout)
    for future in futures:
        future.wait(None if ends_at is None else max(0.0, ends_at - running().now))


class Local:
    """`threading.local`: each virtual thread has attributes of its own."""

    def __init__(self) -> None:
        object.__setattr__(self, "_of", WeakKeyDictionary())

    def __setattr__(self, name: str, value: Any) -> None:
        self._of.setdefault(running().current, {})[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            return self._of.get(running().current, {})[name]
        except KeyError:
            raise AttributeError(name) from None


class VirtualThreading:
    """The parts of `threading` that the operator uses."""

    Thread = Thread
    Lock = Lock
    RLock = Lock
    Event = Event
    Condition = Condition
    Timer = Timer
    local = Local


class VirtualTime:
    """The parts of `time` that the operator uses."""

    EPOCH_SECONDS = 1_767_225_600.0  # 2026-01-01T00:00:00Z, when the monotonic clock is at 0

    @staticmethod
    def monotonic() -> float:
        assert _scheduler is not None  # not by `running`: it is asked 10,000 times a day
        return _scheduler.now

    @classmethod
    def time(cls) -> float:
        scheduler = running()
        return cls.EPOCH_SECONDS + scheduler.now + scheduler.group.wall_offset_seconds

    @staticmethod
    def sleep(seconds: float) -> None:
        running().sleep(seconds)


@contextmanager
def as_group(group: Group) -> Iterator[None]:
    """Let what the world's thread makes belong to this process."""
    world = running().world
    before, world.group = world.group, group
    try:
        yield
    finally:
        world.group = before
