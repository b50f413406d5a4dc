"""What a policy may make the operator use: Secrets with the label, hosts of the list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.unit.control.stage import Stage
from tests.unit.resources.documents import ABSENT
from tests.unit.resources.documents import policy as policy_document
from tidegate.errors import InvalidResource, UserActionRequired
from tidegate.observe.secrets_and_hosts import Secrets, read_secrets, refuse_other_hosts
from tidegate.resources import parse_policy
from tidegate.settings import PolicyBounds
from tidegate_logic.reasons import Reason

BARE: dict[str, str] = {}


def _bounds(*hosts: str) -> PolicyBounds:
    return PolicyBounds(allowed_hosts=hosts)


@pytest.mark.parametrize(
    ("labels", "unlabelled", "allowed"),
    [
        ({"tidegate.io/credentials": "true"}, (), True),
        ({"tidegate.io/credentials": "false"}, (), False),
        ({"tidegate.io/credentials": ""}, (), False),
        (BARE, (), False),
        (BARE, ("other",), False),
        (BARE, ("login",), True),
        (BARE, ("*",), True),
    ],
)
def test_a_secret_is_used_with_the_label_or_by_its_name(
    labels: dict[str, str], unlabelled: tuple[str, ...], *, allowed: bool
) -> None:
    kubernetes = InMemoryKubernetes()
    kubernetes.put_secret("streaming", "login", {"password": b"swordfish"}, labels)
    bounds = PolicyBounds(unlabelled_secrets=unlabelled)
    if allowed:
        found = read_secrets(kubernetes, "streaming", ["login"], bounds=bounds)
        assert found.data == {"login": {"password": b"swordfish"}}
        return
    with pytest.raises(UserActionRequired) as refused:
        read_secrets(kubernetes, "streaming", ["login"], bounds=bounds)
    assert refused.value.reason is Reason.SECRET_NOT_ALLOWED


@pytest.mark.parametrize(
    ("field", "login"),
    [
        (
            "tokenEndpointUri",
            {
                "type": "oauthbearer",
                "tokenEndpointUri": "https://internal.example:8443/token",
                "clientId": "x",
                "clientSecret": {"secretName": "login", "key": "x"},
            },
        ),
        (
            "stsEndpoint",
            {
                "type": "aws-msk-iam",
                "region": "eu-west-1",
                "roleArn": "arn:aws:iam::123456789012:role/x",
                "accessTokenFile": "aws",
                "stsEndpoint": "https://internal.example",
            },
        ),
    ],
)
def test_the_endpoints_of_tokens_are_hosts_too(field: str, login: dict[str, object]) -> None:
    changes: dict[str, object] = {"kafka.authentication": login}
    parsed = parse_policy(policy_document(changes), strict=True)
    known = ("kafka-1", "kafka-2", "*.svc", "prometheus", "s3.example", "zk-1")
    with pytest.raises(InvalidResource, match=rf"authentication\.{field} names .*internal") as no:
        refuse_other_hosts("streaming/orders", parsed.spec, _bounds(*known))
    assert no.value.reason is Reason.HOST_NOT_ALLOWED


def test_a_token_file_is_one_of_the_policys_namespace() -> None:
    bounds = PolicyBounds(token_folder="/tokens")
    found = read_secrets(InMemoryKubernetes(), "streaming", [], bounds=bounds)
    assert found.token_file("kafka") == Path("/tokens/streaming/kafka")


def test_a_refused_secret_reads_like_this(golden: Callable[[str], None]) -> None:
    kubernetes = InMemoryKubernetes()
    kubernetes.put_secret("streaming", "login", {"password": b"swordfish"}, labels={})
    with pytest.raises(UserActionRequired) as refused:
        read_secrets(kubernetes, "streaming", ["login"])
    golden(refused.value.message)


def test_a_secret_whose_label_was_taken_off_is_not_used_from_memory() -> None:
    kubernetes = InMemoryKubernetes()
    kubernetes.put_secret("streaming", "login", {"password": b"swordfish"}, labels={})
    known = Secrets("streaming", {"login": {"password": b"swordfish"}})
    with pytest.raises(UserActionRequired, match="lacks the label"):
        read_secrets(kubernetes, "streaming", ["login"], known=known)


@pytest.mark.parametrize(
    ("url", "hosts", "allowed"),
    [
        ("https://prometheus:9090", ["prometheus"], True),
        ("https://PROMETHEUS.:9090/x", ["prometheus"], True),
        ("https://prometheus:9090", ["prometheus:9090"], True),
        ("https://prometheus:9091", ["prometheus:9090"], False),
        ("https://prometheus", ["prometheus:9090"], False),
        ("https://prometheus.monitoring.svc", ["*.monitoring.svc"], True),
        ("https://monitoring.svc", ["*.monitoring.svc"], False),
        ("https://evilmonitoring.svc", ["*.monitoring.svc"], False),
        ("https://prometheus.evil", ["prometheus"], False),
        ("https://prometheus:9090", ["*"], True),
        ("https://[::1]:9090", ["[::1]"], True),
        ("https://[::1]:9090", ["::1"], True),
        ("https://[::2]:9090", ["[::1]:9090"], False),
        ("https://10.0.0.1:9090", ["10.0.0.2"], False),
    ],
)
def test_a_host_is_compared_with_the_list_whole(
    url: str, hosts: list[str], *, allowed: bool
) -> None:
    document = policy_document({"metrics.prometheus.url": url})
    spec = parse_policy(document, strict=True).spec
    others = "kafka-1", "kafka-2", "zk-1", "zk-2", "catalog"
    if allowed:
        refuse_other_hosts("streaming/orders", spec, _bounds(*others, *hosts))
        return
    with pytest.raises(InvalidResource, match=r"spec\.metrics\.prometheus\.url") as refused:
        refuse_other_hosts("streaming/orders", spec, _bounds(*others, *hosts))
    assert refused.value.reason is Reason.HOST_NOT_ALLOWED


@pytest.mark.parametrize(
    "url",
    ["http://evil.example\\.monitoring.svc/x", "http://evil\uff0f.monitoring.svc", "http://[x"],
)
def test_an_address_that_clients_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(InvalidResource, match="must be an http:// or https:// address"):
        parse_policy(policy_document({"metrics.prometheus.url": url}), strict=True)


@pytest.mark.parametrize(
    ("missing", "field"),
    [
        ("kafka-2", "spec.kafka.bootstrapServers names the host kafka-2"),
        ("zk-2", "spec.kafka.zookeeper.connect names the host zk-2"),
        ("prometheus", "spec.metrics.prometheus.url names the host prometheus"),
        ("usage.dfs.core.windows.net", "spec.rollup.storage.url names the host usage.dfs"),
        ("catalog", "spec.rollup.storage.catalog.uri names the host catalog"),
    ],
)
def test_every_address_of_a_policy_is_looked_at(missing: str, field: str) -> None:
    catalog = {"type": "rest", "uri": "https://catalog:8181/x"}
    storage = {"url": "abfss://tables@usage.dfs.core.windows.net/x", "catalog": catalog}
    spec = parse_policy(
        policy_document({"rollup.storage": storage, "rollup.eventLog": ABSENT}), strict=True
    ).spec
    hosts = {"kafka-1", "kafka-2", "zk-1", "zk-2", "prometheus"}
    hosts |= {"usage.dfs.core.windows.net", "catalog"}
    refuse_other_hosts("streaming/orders", spec, _bounds(*hosts))
    with pytest.raises(InvalidResource) as refused:
        refuse_other_hosts("streaming/orders", spec, _bounds(*hosts - {missing}))
    assert field in refused.value.message


def test_a_buckets_endpoint_is_an_address_beside_the_bucket() -> None:
    storage = {"url": "s3://usage/orders", "endpoint": "https://minio.storage:9000"}
    spec = parse_policy(
        policy_document({"rollup.storage": storage, "rollup.eventLog": ABSENT}), strict=True
    ).spec
    hosts = {"kafka-1", "kafka-2", "zk-1", "zk-2", "prometheus", "usage"}
    refuse_other_hosts("streaming/orders", spec, _bounds(*hosts, "minio.storage:9000"))
    with pytest.raises(InvalidResource) as refused:
        refuse_other_hosts("streaming/orders", spec, _bounds(*hosts))
    assert "spec.rollup.storage.endpoint names the host minio.storage" in refused.value.message


def test_tables_in_a_volume_are_at_no_host() -> None:
    spec = parse_policy(policy_document({"rollup.storage.catalog": ABSENT}), strict=True).spec
    refuse_other_hosts("a/b", spec, _bounds("kafka-1", "kafka-2", "zk-1", "zk-2", "prometheus"))


def test_a_policy_with_another_host_connects_to_nothing_and_says_why(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = stage.policy()
    tier = stage.tier()
    stage.run()
    assert stage.produce() == "10000000"
    stage.restart()
    settings = replace(stage.world.settings, bounds=_bounds("*.kafka.example", "zk"))
    stage.world = replace(stage.world, settings=settings)
    stage.kubernetes.delete(tier)
    stage.run()
    assert stage.condition(policy) == ("False", "HostNotAllowed")
    assert stage.condition(policy, "Stalled") == ("True", "HostNotAllowed")
    assert stage.produce() == "10000000", "nothing was restored"
    golden(stage.message(policy))


def test_the_bounds_reach_a_job_through_its_environment() -> None:
    bounds = PolicyBounds(allowed_hosts=("a", "*.b:9090"), unlabelled_secrets=("login",))
    assert PolicyBounds.of_environment(bounds.environment()) == bounds
    assert PolicyBounds.of_environment({}) == PolicyBounds()
