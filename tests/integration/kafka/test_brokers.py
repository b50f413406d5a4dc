"""Three real brokers: they apply the quotas that the store writes, and report their leaders."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kazoo.client import KazooClient

from lab.kafka import DEFAULT, BrokersLab, KafkaLab, QuotaChange
from lab.kraft import KraftLab
from lab.process import patience, wait_until
from tests.contract.quota_store_contract import first, give_back
from tests.integration.connections import connection_of
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.quota_node import config_path, parse_quota
from tidegate.kafka.settings import KafkaConnection, SaslLogin, SaslMechanism, ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.observe.broker_settings import CORDONED, LOG_DIRS, PLUGIN, cordoned_brokers
from tidegate_logic.model import Default, Entity, QuotaKey, TopicLeaders

pytestmark = pytest.mark.integration

# --- quotas ---------------------------------------------------------------------------------------
# Three real brokers apply the quotas that the store writes, keep their logins, and start again with
# them.


PRODUCE, FETCH, REQUEST = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
)


@pytest.fixture
def store(kafka: KafkaLab) -> Iterator[ZooKeeperQuotaStore]:
    opened = ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect)))
    yield opened
    opened.close()


@pytest.fixture
def zookeeper_client(kafka: KafkaLab) -> Iterator[KazooClient]:
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    yield client
    client.stop()
    client.close()


def test_brokers_apply_what_is_written_keep_logins_and_start_again(
    kafka: KafkaLab, store: ZooKeeperQuotaStore, zookeeper_client: KazooClient, unique_name: str
) -> None:
    scram_user = f"{unique_name}-scram"
    kafka.create_scram_user(scram_user, "right")
    wait_until(lambda: kafka.can_log_in(scram_user, "right"), "the SCRAM login", timeout_seconds=20)
    credentials = _foreign_settings(zookeeper_client, Entity(scram_user))
    assert credentials
    odd = Entity(f"{unique_name} w*+~<default>")
    pair = Entity(odd.user, f"{unique_name}/app 1")
    entities = [
        Entity(scram_user),
        odd,
        pair,
        Entity(Default.DEFAULT, f"{unique_name}-any"),
        Entity(None, unique_name),
    ]

    seen = store.read(entities)
    outcomes = store.write(
        [
            first(seen[entity], {PRODUCE: "7340032", FETCH: "8388608", REQUEST: "150"})
            for entity in entities
        ],
        kafka.cluster_id,
    )
    assert all(outcome.applied for outcome in outcomes)
    for change in (
        QuotaChange("PRODUCE", scram_user, None, 7340032.0),
        QuotaChange("FETCH", f"{unique_name}%20w%2A%2B%7E%3Cdefault%3E", None, 8388608.0),
        QuotaChange("PRODUCE", DEFAULT, f"{unique_name}-any", 7340032.0),
        QuotaChange("REQUEST", None, unique_name, 150.0),
    ):
        kafka.wait_for_quota_applied(change)
    assert kafka.can_log_in(scram_user, "right")
    assert not kafka.can_log_in(scram_user, "wrong")

    kafka.broker(2).stop()
    kafka.broker(2).start()
    kafka.admin.wait_for_brokers([1, 2, 3])

    seen = store.read(entities)
    store.write(
        [give_back(seen[entity], dict.fromkeys((PRODUCE, FETCH, REQUEST))) for entity in entities],
        kafka.cluster_id,
    )
    kafka.wait_for_quota_applied(QuotaChange("PRODUCE", scram_user, None, None))
    assert kafka.can_log_in(scram_user, "right")
    assert _foreign_settings(zookeeper_client, Entity(scram_user)) == credentials
    assert zookeeper_client.exists(config_path(pair)) is None


def test_notifications_continue_kafkas_own_sequence(
    kafka: KafkaLab, store: ZooKeeperQuotaStore, zookeeper_client: KazooClient, unique_name: str
) -> None:
    entity = Entity(unique_name)
    store.write([first(store.read([entity])[entity], {PRODUCE: "7340032"})], kafka.cluster_id)
    kafka.create_scram_user(f"{unique_name}-next", "secret")
    names = sorted(zookeeper_client.get_children("/config/changes"))
    notifications = {
        name: zookeeper_client.get(f"/config/changes/{name}")[0].decode() for name in names
    }
    ours = next(
        name for name, text in notifications.items() if text.endswith(f'users/{unique_name}"}}')
    )
    theirs = next(
        name
        for name, text in notifications.items()
        if text.endswith(f'users/{unique_name}-next"}}')
    )
    assert int(theirs.removeprefix("config_change_")) > int(ours.removeprefix("config_change_"))
    store.write([give_back(store.read([entity])[entity], {PRODUCE: None})], kafka.cluster_id)


def _foreign_settings(client: KazooClient, entity: Entity) -> dict[str, str]:
    """The exact JSON texts of all settings in the node that are not quotas."""
    content = parse_quota(client.get(config_path(entity))[0])
    return {
        setting.key: setting.value_token
        for setting in content.settings
        if setting.key not in set(QuotaKey)
    }


# --- leaders --------------------------------------------------------------------------------------
# Leaders and brokers as three real brokers report them: with a dead broker, with a wrong login, and
# without an answer.


@pytest.fixture
def topology(three_brokers: BrokersLab) -> Iterator[KafkaTopology]:
    settings = connection_of(three_brokers.bootstrap_servers)
    store = AdminQuotaStore(settings)
    opened = KafkaTopology(settings, topic_names=store.topic_names)
    yield opened
    opened.close()
    store.close()


def test_names_and_prefixes_are_found_and_missing_topics_are_not_made(
    three_brokers: BrokersLab, topology: KafkaTopology, unique_name: str
) -> None:
    three_brokers.create_topic(f"{unique_name}.a", [[1, 2], [2, 3], [3, 1]])
    three_brokers.create_topic(f"{unique_name}.b", [[2, 3], [2, 3]])
    for _ in range(2):
        read = topology.read([f"{unique_name}.*", f"{unique_name}-missing"])
        assert read.brokers == {1, 2, 3}
        assert read.topics == {
            f"{unique_name}.a": TopicLeaders({1: 1, 2: 1, 3: 1}),
            f"{unique_name}.b": TopicLeaders({2: 2}),
        }


def test_the_brokers_report_the_same_cluster_id_and_run_no_quota_plugin(
    three_brokers: BrokersLab, topology: KafkaTopology
) -> None:
    assert topology.read([]).cluster_id == three_brokers.cluster_id
    answers = topology.settings([1, 2, 3], [PLUGIN, "quota.window.num"])
    assert answers == {broker: {"quota.window.num": "11"} for broker in (1, 2, 3)}


def test_leaders_are_followed_when_the_broker_in_use_dies(
    three_brokers: BrokersLab, topology: KafkaTopology, unique_name: str
) -> None:
    three_brokers.create_topic(unique_name, [[1, 2], [2, 3], [3, 1]])
    assert topology.read([unique_name]).topics[unique_name] == TopicLeaders({1: 1, 2: 1, 3: 1})
    three_brokers.broker(1).kill()
    try:
        moved = TopicLeaders({2: 2, 3: 1})
        wait_until(
            lambda: topology.read([unique_name]).topics.get(unique_name) == moved,
            "leaders on the living brokers",
            timeout_seconds=30,
        )
        wait_until(
            lambda: topology.read([unique_name]).brokers == {2, 3},
            "the dead broker to be gone",
            timeout_seconds=30,
        )
    finally:
        three_brokers.broker(1).start()
        three_brokers.admin.wait_for_brokers([1, 2, 3])


def test_a_broker_is_known_to_be_cordoned_until_it_is_not_any_more(kraft: KraftLab) -> None:
    settings = connection_of(kraft.bootstrap_servers)
    with closing(KafkaTopology(settings, topic_names=frozenset)) as topology:
        topology.read([])

        def cordoned_are(expected: set[int]) -> bool:
            return cordoned_brokers(topology.settings([1], [CORDONED, LOG_DIRS])) == expected

        assert cordoned_are(set())
        if kraft.version < "4.3":
            return
        for value in ("*", str(kraft.broker(1).plan.directory / "data"), ""):
            entry = ConfigEntry(
                CORDONED,
                value,
                incremental_operation=AlterConfigOpType.SET if value else AlterConfigOpType.DELETE,
            )
            resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
            admin = AdminClient({"bootstrap.servers": kraft.bootstrap_servers})
            admin.incremental_alter_configs([resource])[resource].result(patience(20))
            expected = {1} if value else set()
            wait_until(partial(cordoned_are, expected), f"{CORDONED} {value}", timeout_seconds=20)


@pytest.mark.parametrize(("password", "accepted"), [("alice-password", True), ("wrong", False)])
def test_a_login_is_used_and_its_refusal_names_the_user(
    three_brokers: BrokersLab, password: str, *, accepted: bool
) -> None:
    login = SaslLogin(SaslMechanism.PLAIN, "alice", password)
    settings = connection_of(three_brokers.sasl_bootstrap_servers, login)
    assert password not in repr(settings)
    topology = KafkaTopology(settings, topic_names=frozenset)
    if accepted:
        assert topology.read([]).brokers == {1, 2, 3}
    else:
        with pytest.raises(Unauthorized, match="alice"):
            topology.read([])
    topology.close()


def test_without_an_answer_the_error_names_every_broker_and_its_failure() -> None:
    with socket.socket() as unused, socket.create_server(("127.0.0.1", 0)) as mute:
        unused.bind(("127.0.0.1", 0))
        refused, silent = (f"127.0.0.1:{place.getsockname()[1]}" for place in (unused, mute))
        topology = KafkaTopology(
            KafkaConnection((refused, silent), request_timeout_seconds=1.5), topic_names=frozenset
        )
        with pytest.raises(Unreachable) as error:
            topology.read([])
    assert f"{refused}: " in error.value.message
    assert f"{silent}: " in error.value.message
