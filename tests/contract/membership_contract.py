"""The contract of `tidegate.forwarder.membership.Membership`, as tests on real parts.

A subclass gives the fixture `world`. Members are played by `Forwarder`, the least that a forwarder
does: in threads, and in processes of their own where they are killed or stopped. Everything they do
is recorded with its time, so that a test can say that nobody had a topic while another had it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import pytest

from lab.process import Process, freeze, start, wait_until
from tidegate.forwarder.membership import Membership

CHECKOUT = Path(__file__).parents[2]
LONG_SECONDS, SHORT_SECONDS = 20.0, 6.0
"""Session timeouts: one that a busy machine keeps, and one for members that die."""


@dataclass(frozen=True)
class Act:
    """What a member did, in monotonic seconds, which all processes of a machine share."""

    at: float
    member: str
    what: str  # took, sent, released
    topic: str


class Forwarder:
    """Takes, sends and releases topics, and starts again when its session is lost."""

    def __init__(
        self,
        join: Callable[[str], Membership],
        name: str,
        topics: Callable[[], Collection[str]],
        record: Callable[[Act], None],
    ) -> None:
        self._join, self._name, self._topics, self._record = join, name, topics, record

    def run(self, stopping: threading.Event) -> None:
        """Forward until `stopping`, by one session after another."""
        session = 0
        while not stopping.is_set():
            session += 1
            membership = self._join(f"{self._name}-{session}")
            try:
                self._forward(membership, stopping)
            finally:
                membership.close()

    def _forward(self, membership: Membership, stopping: threading.Event) -> None:
        held: dict[str, float] = {}  # topic -> when it was sent last
        while not membership.is_lost():
            membership.topics(self._topics())
            wanted = frozenset[str]() if stopping.is_set() else membership.wanted()
            for topic in sorted(held.keys() - wanted):
                self._note(membership, "released", topic)
                membership.release(topic)
                del held[topic]
            if stopping.is_set():
                return
            for topic in sorted(wanted - held.keys()):
                if membership.take(topic):
                    held[topic] = 0.0
                    self._note(membership, "took", topic)
            for topic, last in held.items():
                if time.monotonic() - last > 0.1 and membership.may_send():
                    self._note(membership, "sent", topic)
                    held[topic] = time.monotonic()
            time.sleep(0.005)

    def _note(self, membership: Membership, what: str, topic: str) -> None:
        self._record(Act(time.monotonic(), membership.member, what, topic))


def play(join: Callable[[str], Membership], name: str, topics_file: Path) -> None:
    """What a member's process does: forward the topics in the file, and print each act."""
    Forwarder(
        join,
        name,
        lambda: topics_file.read_text().split(),
        lambda act: print(json.dumps(asdict(act)), flush=True),
    ).run(threading.Event())


class World(Protocol):
    """Real parts, and how one becomes a member there."""

    prefix: str

    def create(self, topics: Collection[str]) -> None:
        """Make the topics exist, where that matters."""

    def join(
        self,
        member: str,
        *,
        prefix: str = "",
        timeout_seconds: float = LONG_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> Membership:
        """A new session; without a prefix, of the world's own."""

    def arguments(self) -> list[str]:
        """What `member_process` needs to join."""

    def silent(self) -> AbstractContextManager[None]:
        """The servers do not answer within this block."""


class Crew:
    """Members of one queue, what each did, and who has what."""

    def __init__(self, world: World, topics: Collection[str], directory: Path) -> None:
        self.world = world
        self.topics = frozenset(topics)
        self._directory = directory
        self._topics_file = directory / "topics"
        self._acts: list[Act] = []
        self._threads: dict[str, tuple[threading.Thread, threading.Event]] = {}
        self._processes: dict[str, Process] = {}
        self.list_topics(topics)

    def list_topics(self, topics: Collection[str]) -> None:
        """The topics that members see from now on."""
        self.world.create(topics)
        self.topics = frozenset(topics)
        partial = self._topics_file.with_suffix(".partial")
        partial.write_text(" ".join(sorted(topics)))
        partial.replace(self._topics_file)

    def start(self, name: str) -> None:
        """A member in a thread."""
        stopping = threading.Event()
        forwarder = Forwarder(self.world.join, name, lambda: self.topics, self._acts.append)
        thread = threading.Thread(target=forwarder.run, args=(stopping,), daemon=True)
        self._threads[name] = thread, stopping
        thread.start()

    def leave(self, name: str) -> None:
        """It finishes, and closes its session."""
        thread, stopping = self._threads.pop(name)
        stopping.set()
        thread.join()

    def start_process(self, name: str) -> Process:
        """A member in a process of its own, with the short session timeout."""
        module = "tests.integration.forwarder.member_process"
        process = start(
            name,
            [sys.executable, "-m", module, name, str(self._topics_file), *self.world.arguments()],
            log_path=self._directory / f"{name}.log",
            working_directory=CHECKOUT,
            environment={"PYTHONPATH": f"{CHECKOUT}/operator:{CHECKOUT}/controller_logic"},
        )
        self._processes[name] = process
        return process

    def stop(self) -> None:
        """End all members."""
        for name in list(self._threads):
            self.leave(name)
        for process in self._processes.values():
            process.kill()

    def acts(self) -> list[Act]:
        """Everything that was done until now, in order."""
        printed = [
            Act(**json.loads(line))
            for process in self._processes.values()
            if process.log_path.exists()
            for line in process.log_path.read_text().splitlines()
            if line.startswith("{") and line.endswith("}")
        ]
        return sorted([*self._acts, *printed], key=lambda act: act.at)

    def owners(self) -> dict[str, str]:
        """Who took each topic last, by the name without the session's number."""
        owners: dict[str, str] = {}
        for act in self.acts():
            if act.what == "took":
                owners[act.topic] = act.member.rpartition("-")[0]
            elif act.what == "released":
                owners.pop(act.topic, None)
        return owners

    def settled(self, *names: str, timeout_seconds: float = 20) -> dict[str, str]:
        """Wait until these members, and no others, share all topics evenly; who has which."""
        return wait_until(
            lambda: self._if_shared(names),
            f"{', '.join(names)} to share {len(self.topics)} topics",
            timeout_seconds=timeout_seconds,
            processes=[self._processes[name] for name in names if name in self._processes],
        )

    def _if_shared(self, names: Collection[str]) -> dict[str, str]:
        owners = self.owners()
        counts = [list(owners.values()).count(name) for name in names]
        is_even = max(counts) - min(counts) <= 1 and sum(counts) == len(owners)
        return owners if owners.keys() == self.topics and is_even else {}

    def wait_until_sent(self, name: str, after: float) -> None:
        """Wait until each topic of this member was sent, by any of its sessions."""
        its = {topic for topic, owner in self.owners().items() if owner == name}
        wait_until(
            lambda: its <= {act.topic for act in self.acts() if _is_of(act, name, after)},
            f"{name} to send {sorted(its)}",
            timeout_seconds=20,
        )

    def expect_one_owner_at_a_time(self, *ended: str) -> None:
        """Nobody took a topic before its last owner had released it, unless that has `ended`; and
        only its owner sent of it.
        """
        owners: dict[str, str] = {}
        for act in self.acts():
            owner = owners.get(act.topic)
            if act.what == "took":
                assert owner is None or owner.rpartition("-")[0] in ended, f"{act}: {owner} has it"
                owners[act.topic] = act.member
            elif act.what == "sent":
                assert act.member == owner, f"{act}: {owner} has it"
            elif act.member == owner:
                del owners[act.topic]


def _is_of(act: Act, name: str, after: float) -> bool:
    return act.what == "sent" and act.at > after and act.member.rpartition("-")[0] == name


def _moved(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {topic for topic, owner in after.items() if before.get(topic, owner) != owner}


def _levels(prefix: str, count: int = 16) -> list[str]:
    return [f"{prefix}.{seconds}.{number}" for seconds in (5, 600) for number in range(count // 2)]


class MembershipContract:
    """What both kinds of membership do."""

    most_moves: tuple[int, int]
    """How many topics with an owner may move when four others appear, and when eight go."""

    @pytest.fixture
    def topics(self, world: World) -> list[str]:
        """Sixteen level topics of the world's queue."""
        return _levels(world.prefix)

    @pytest.fixture
    def crew(self, world: World, topics: list[str], tmp_path: Path) -> Iterator[Crew]:
        """Nobody yet; ended after the test."""
        crew = Crew(world, topics, tmp_path)
        yield crew
        crew.stop()

    def test_who_joins_gets_its_share_and_nothing_else_moves(self, crew: Crew) -> None:
        crew.start("a")
        owners = crew.settled("a")
        for names in (("a", "b"), ("a", "b", "c")):
            crew.start(names[-1])
            before, owners = owners, crew.settled(*names)
            moved = _moved(before, owners)
            assert len(moved) <= math.ceil(len(crew.topics) / len(names))
            assert {owners[topic] for topic in moved} == {names[-1]}
        for name in names:
            crew.wait_until_sent(name, time.monotonic())
        crew.expect_one_owner_at_a_time()

    def test_what_a_member_had_that_closed_is_taken_over_before_its_session_would_have_ended(
        self, crew: Crew
    ) -> None:
        for name in ("a", "b", "c"):
            crew.start(name)
        before = crew.settled("a", "b", "c")
        crew.leave("b")
        after = crew.settled("a", "c", timeout_seconds=LONG_SECONDS / 2)
        assert _moved(before, after) == {topic for topic, owner in before.items() if owner == "b"}
        crew.expect_one_owner_at_a_time()

    def test_a_topic_is_not_given_before_its_owner_has_released_it(
        self, world: World, topics: list[str]
    ) -> None:
        world.create(topics)
        with contextlib.ExitStack() as sessions:
            first = sessions.enter_context(_joined(world, "first"))
            first.topics(topics)
            _take_all(first, topics)
            second = sessions.enter_context(_joined(world, "second"))
            second.topics(topics)
            wait_until(
                lambda: len(first.wanted()) == len(topics) / 2,
                "the first to lose its half",
                timeout_seconds=20,
            )
            lost = set(topics) - first.wanted()
            kept = min(lost)
            for topic in lost - {kept}:
                first.release(topic)
            # at most one request is under way, so the answer is there before the third look at all
            assert not any(second.take(kept) for _ in range(100))
            first.release(kept)
            _take_all(second, lost)
            assert not first.take(kept)
            assert first.wanted().isdisjoint(second.wanted())

    def test_a_killed_member_is_replaced_when_its_session_has_ended(self, crew: Crew) -> None:
        crew.start("a")
        crew.start("b")
        victim = crew.start_process("c")
        before = crew.settled("a", "b", "c")
        crew.wait_until_sent("c", 0)
        victim.kill()
        after = crew.settled("a", "b", timeout_seconds=10)
        assert _moved(before, after) == {topic for topic, owner in before.items() if owner == "c"}
        crew.expect_one_owner_at_a_time("c")

    def test_a_stopped_member_sends_nothing_when_it_continues_and_comes_back_as_a_new_one(
        self, crew: Crew
    ) -> None:
        crew.start("a")
        stopped = crew.start_process("b")
        crew.settled("a", "b")
        crew.wait_until_sent("b", 0)
        freeze(stopped.pid)
        crew.settled("a", timeout_seconds=10)
        continued_at = time.monotonic()
        os.kill(stopped.pid, signal.SIGCONT)
        crew.settled("a", "b")
        crew.wait_until_sent("b", continued_at)
        sent_by = {act.member for act in crew.acts() if _is_of(act, "b", continued_at)}
        assert sent_by == {"b-2"}
        crew.expect_one_owner_at_a_time("b")

    def test_nothing_is_sent_when_the_last_answer_is_older_than_two_thirds_of_the_timeout(
        self, world: World, topics: list[str]
    ) -> None:
        world.create(topics)
        ahead_seconds = 0.0
        with _joined(world, "only", clock=lambda: time.monotonic() + ahead_seconds) as only:
            assert not only.may_send()
            only.topics(topics)
            _take_all(only, topics)
            wait_until(only.may_send, "the first answer", timeout_seconds=20)
            with world.silent():
                ahead_seconds = LONG_SECONDS * 2 / 3
                assert not only.may_send()
                assert not only.is_lost()
                assert only.wanted() == set(topics)
            wait_until(only.may_send, "the next answer", timeout_seconds=20)
            assert only.wanted() == set(topics)

    def test_topics_appear_and_go(self, crew: Crew) -> None:
        for name in ("a", "b"):
            crew.start(name)
        before = crew.settled("a", "b")
        crew.list_topics([*crew.topics, *(f"{crew.world.prefix}.60.{n}" for n in range(4))])
        between = crew.settled("a", "b")
        assert len(_moved(before, between)) <= self.most_moves[0]
        crew.list_topics([topic for topic in crew.topics if ".600." not in topic])
        after = crew.settled("a", "b")
        assert len(_moved(between, after)) <= self.most_moves[1]
        crew.expect_one_owner_at_a_time()

    def test_queues_do_not_see_each_other_even_if_one_prefix_begins_with_the_other(
        self, world: World, topics: list[str]
    ) -> None:
        longer = f"{world.prefix}.unpaid"
        others = _levels(longer, 4)
        world.create([*topics, *others])
        with _joined(world, "same") as one, _joined(world, "same", prefix=longer) as other:
            one.topics(topics)
            other.topics(others)
            _take_all(one, topics)
            _take_all(other, others)


@contextlib.contextmanager
def _joined(
    world: World,
    member: str,
    *,
    prefix: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Membership]:
    membership = world.join(member, prefix=prefix, clock=clock)
    try:
        yield membership
    finally:
        membership.close()


def _take_all(membership: Membership, topics: Collection[str]) -> None:
    wait_until(
        lambda: membership.wanted() == set(topics), "these topics to be wanted", timeout_seconds=20
    )
    wait_until(
        lambda: all(membership.take(topic) for topic in topics),
        f"{membership.member} to take {sorted(topics)}",
        timeout_seconds=20,
    )
