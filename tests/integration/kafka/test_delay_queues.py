"""Topics, positions and claims of delay queues on real brokers, with ZooKeeper and with KRaft."""

import time
from collections.abc import Iterator

import pytest

from lab.kafka import BrokersLab
from lab.process import patience, wait_until
from tests.integration.connections import connection_of
from tests.integration.kafka.queue_clients import QueueClients
from tidegate.errors import LeaseLost, UserActionRequired
from tidegate.kafka.delay_queues import CONTROL_SETTINGS, LevelSeen, QueueTopics
from tidegate.queues.names import QueueNames
from tidegate.queues.position import PositionNote
from tidegate_logic.queues.levels import Level, WantedLevels, first_claim
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration
WANTED = WantedLevels({5: 1}, grace_seconds=3600)
SETTINGS = WANTED.settings(Level(5, 0))
LATE_SECONDS = 100.0


class QueueTopicsContract:
    @pytest.fixture
    def brokers(self) -> BrokersLab:
        raise NotImplementedError

    @pytest.fixture
    def names(self, unique_name: str) -> QueueNames:
        return QueueNames(f"shop.{unique_name}")

    @pytest.fixture
    def clients(self, brokers: BrokersLab) -> QueueClients:
        return QueueClients(brokers.bootstrap_servers)

    @pytest.fixture
    def topics(self, brokers: BrokersLab) -> Iterator[QueueTopics]:
        opened = opened_topics(brokers)
        yield opened
        opened.close()

    def level(self, topics: QueueTopics, names: QueueNames) -> LevelSeen:
        """The topic of 5 s, once leader and group are known."""

        def found() -> LevelSeen | None:
            seen = topics.levels(names, topics.listing())
            one = seen.get(names.level_topic(5, 0))
            if one is None or None in (one.found.begin, one.found.end):
                return None
            return one if one.found.position_known or one.problem else None

        seen = wait_until(found, "the level topic to be known", timeout_seconds=30)
        assert seen is not None
        return seen

    def made(self, topics: QueueTopics, names: QueueNames) -> str:
        """The name of the queue's one level topic, which is there now."""
        name = names.level_topic(5, 0).name
        topics.create(names, {name: SETTINGS}, replication_factor=1)
        self.level(topics, names)
        return name

    def test_a_topic_is_created_corrected_and_deleted(
        self, topics: QueueTopics, names: QueueNames, clients: QueueClients
    ) -> None:
        assert topics.levels(names, topics.listing()) == {}
        name = self.made(topics, names)
        topics.create(names, {name: SETTINGS}, replication_factor=1)  # it exists by now
        seen = self.level(topics, names)
        assert seen.found.settings == SETTINGS
        assert seen.found.partitions == 1
        assert clients.settings(name).items() >= SETTINGS.items()
        topics.correct(names, {name: {"retention.ms": "7200000"}})
        wait_until(
            lambda: (self.level(topics, names).found.settings or {})["retention.ms"] == "7200000",
            "the corrected retention",
            timeout_seconds=30,
        )
        topics.delete(names, [name])
        wait_until(lambda: not clients.topics(names.prefix), "its end", timeout_seconds=30)
        topics.delete(names, [name])  # it is gone already

    def test_what_waits_is_what_was_not_committed(
        self, topics: QueueTopics, names: QueueNames, clients: QueueClients
    ) -> None:
        name = self.made(topics, names)
        assert self.level(topics, names).found.waiting == 0
        clients.produce(name, 5)
        seen = self.level(topics, names)
        assert (seen.found.waiting, seen.found.position, seen.note) == (5, None, None)
        note = PositionNote(owner="pod-0", lost=3, clock_ms=-70)
        clients.commit(names, name, 3, note)
        seen = self.level(topics, names)
        assert (seen.found.waiting, seen.found.position, seen.note) == (2, 3, note)
        clients.delete_records(name, 4)
        wait_until(
            lambda: self.level(topics, names).found.begin == 4,
            "the records to be gone",
            timeout_seconds=30,
        )
        found = self.level(topics, names).found
        assert (found.waiting, found.lost) == (1, 1)

    def test_the_oldest_waiting_record_is_late_by_the_brokers_time(
        self, brokers: BrokersLab, names: QueueNames, clients: QueueClients
    ) -> None:
        now = Now()
        topics = QueueTopics(connection_of(brokers.bootstrap_servers), wall=now)
        name = self.made(topics, names)
        clients.produce(name, 3)
        assert self.level(topics, names).found.late_seconds == 0.0
        now.ahead_seconds = 5.0 + LATE_SECONDS
        late_seconds = self.level(topics, names).found.late_seconds
        assert late_seconds is not None
        assert LATE_SECONDS - 1 <= late_seconds <= LATE_SECONDS + patience(30)
        clients.commit(names, name, 3)
        assert self.level(topics, names).found.late_seconds == 0.0
        topics.close()

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_ends_of_transactions_and_what_was_taken_back_do_not_wait(
        self, is_committed: bool, brokers: BrokersLab, names: QueueNames, clients: QueueClients
    ) -> None:
        now = Now()
        topics = QueueTopics(connection_of(brokers.bootstrap_servers), wall=now)
        name = self.made(topics, names)
        clients.produce_in_transaction(name, 3, commit=is_committed)
        clients.commit(names, name, 3 if is_committed else 0)
        now.ahead_seconds = 60.0
        wait_until(
            lambda: self.level(topics, names).found.waiting == 0,
            "nothing to wait",
            timeout_seconds=30,
        )
        found = self.level(topics, names).found
        assert found.late_seconds == 0.0
        assert found.end == 4
        topics.close()

    def test_a_note_of_a_newer_version_makes_the_position_unknown(
        self, topics: QueueTopics, names: QueueNames, clients: QueueClients
    ) -> None:
        name = self.made(topics, names)
        clients.produce(name)
        clients.commit(names, name, 1, '{"v":2,"owner":"pod-0"}')
        seen = self.level(topics, names)
        assert (seen.found.position_known, seen.found.waiting) == (False, None)
        assert seen.problem is not None
        assert seen.problem.reason is Reason.NEWER_VERSION

    def test_dead_records_are_counted(
        self, topics: QueueTopics, names: QueueNames, clients: QueueClients
    ) -> None:
        assert topics.count(names.dead_topic, topics.listing()) == 0
        topics.create(names, {names.dead_topic: {}}, replication_factor=1)
        wait_until(
            lambda: topics.count(names.dead_topic, topics.listing()) == 0,
            "the dead topic's leader",
            timeout_seconds=30,
        )
        clients.produce(names.dead_topic, 2)
        assert topics.count(names.dead_topic, topics.listing()) == 2

    def test_more_replicas_than_brokers_are_refused_with_what_to_do(
        self, topics: QueueTopics, names: QueueNames
    ) -> None:
        with pytest.raises(UserActionRequired) as refused:
            topics.create(names, {names.level_topic(5, 0).name: SETTINGS}, replication_factor=7)
        assert refused.value.reason is Reason.INVALID_SPEC
        assert "spec.topics.replicationFactor" in refused.value.message

    def test_the_first_claim_has_the_prefix_until_it_is_released(
        self, topics: QueueTopics, brokers: BrokersLab, names: QueueNames
    ) -> None:
        assert topics.claims.read(names) == {}
        claims = topics.claims.claim(names, "older", "shop/unpaid")
        assert {uid: one.queue_key for uid, one in claims.items()} == {"older": "shop/unpaid"}
        others = opened_topics(brokers)
        claims = others.claims.claim(names, "younger", "shop/other")
        assert first_claim({uid: one.offset for uid, one in claims.items()}) == "older"
        # a claim that is there already is not written again, and so stays the first
        assert topics.claims.claim(names, "older", "shop/unpaid") == claims
        left = topics.claims.release(names, "older")
        assert list(left) == ["younger"]
        assert others.claims.read(names) == left
        assert topics.claims.release(names, "older") == left
        others.close()

    def test_the_control_topic_keeps_the_time_of_its_records(
        self, topics: QueueTopics, names: QueueNames, clients: QueueClients
    ) -> None:
        topics.keep_control_topic(names, topics.listing(), replication_factor=1)
        assert clients.settings(names.control_topic).items() >= CONTROL_SETTINGS.items()
        topics.claims.claim(names, "uid", "shop/unpaid")
        clients.set(names.control_topic, "message.timestamp.type", "CreateTime")
        topics.keep_control_topic(names, topics.listing(), replication_factor=1)
        wait_until(
            lambda: (
                clients.settings(names.control_topic)["message.timestamp.type"] == "LogAppendTime"
            ),
            "the corrected setting",
            timeout_seconds=30,
        )
        # what forwarders write there is no claim
        clients.produce(names.control_topic, 3, key="clock")
        assert list(topics.claims.read(names)) == ["uid"]

    def test_a_control_topic_that_forgets_is_refused(
        self, topics: QueueTopics, names: QueueNames, clients: QueueClients
    ) -> None:
        settings = {"cleanup.policy": "delete"}
        topics.create(names, {names.control_topic: settings}, replication_factor=1)
        wait_until(
            lambda: names.control_topic in clients.topics(names.prefix),
            "the topic",
            timeout_seconds=30,
        )
        with pytest.raises(UserActionRequired) as refused:
            topics.claims.claim(names, "older", "shop/unpaid")
        assert refused.value.reason is Reason.TOPIC_TAKEN

    def test_nothing_is_changed_without_the_lease(
        self, topics: QueueTopics, names: QueueNames, clients: QueueClients
    ) -> None:
        name = self.made(topics, names)
        topics.only_while(lambda: False)
        attempts = (
            lambda: topics.create(names, {names.dead_topic: {}}, replication_factor=1),
            lambda: topics.correct(names, {name: {"retention.ms": "1"}}),
            lambda: topics.delete(names, [name]),
            lambda: topics.claims.claim(names, "uid", "shop/unpaid"),
        )
        for attempt in attempts:
            with pytest.raises(LeaseLost):
                attempt()
        assert clients.topics(names.prefix) == {name}
        assert clients.settings(name)["retention.ms"] == SETTINGS["retention.ms"]


class Now:
    """The wall clock, ahead by as much as a test wants."""

    ahead_seconds = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_seconds


def opened_topics(brokers: BrokersLab) -> QueueTopics:
    return QueueTopics(connection_of(brokers.bootstrap_servers))


class TestWithZooKeeper(QueueTopicsContract):
    @pytest.fixture
    def brokers(self, kafka: BrokersLab) -> BrokersLab:
        return kafka


class TestWithKraft(QueueTopicsContract):
    @pytest.fixture
    def brokers(self, kraft: BrokersLab) -> BrokersLab:
        return kraft
