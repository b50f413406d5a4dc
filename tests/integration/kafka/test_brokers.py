"""Three real brokers apply the quotas that the store writes, keep their logins, and start again with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from controller_logic.model import Default, Entity, QuotaKey
from lab.kafka import DEFAULT, KafkaLab, QuotaChange
from lab.process import wait_until
from tests.contract.quota_store_stage import first, give_back
from tidegate.kafka.names import config_path, parse_quota
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore

pytestmark = pytest.mark.integration
PRODUCE, FETCH, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE


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


@pytest.mark.timeout(240)
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
    entities = [Entity(scram_user), odd, pair, Entity(Default.DEFAULT, f"{unique_name}-any"), Entity(None, unique_name)]

    seen = store.read(entities)
    outcomes = store.write(
        [first(seen[entity], {PRODUCE: "7340032", FETCH: "8388608", REQUEST: "150"}) for entity in entities], kafka.cluster_id
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
    store.write([give_back(seen[entity], dict.fromkeys((PRODUCE, FETCH, REQUEST))) for entity in entities], kafka.cluster_id)
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
    notifications = {name: zookeeper_client.get(f"/config/changes/{name}")[0].decode() for name in names}
    ours = next(name for name, text in notifications.items() if text.endswith(f'users/{unique_name}"}}'))
    theirs = next(name for name, text in notifications.items() if text.endswith(f'users/{unique_name}-next"}}'))
    assert int(theirs.removeprefix("config_change_")) > int(ours.removeprefix("config_change_"))
    store.write([give_back(store.read([entity])[entity], {PRODUCE: None})], kafka.cluster_id)


def _foreign_settings(client: KazooClient, entity: Entity) -> dict[str, str]:
    """The exact JSON texts of all settings in the node that are not quotas."""
    content = parse_quota(client.get(config_path(entity))[0])
    return {setting.key: setting.value_token for setting in content.settings if setting.key not in set(QuotaKey)}
