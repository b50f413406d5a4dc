"""What Tidegate uses of kazoo and kafka-python beyond their public interface: a release that takes
it away fails here, not in a cluster.
"""

import json
from types import ModuleType

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, ConnectionClosedError, NoNodeError
from kazoo.protocol.serialization import Transaction
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from tidegate.kafka import protocol
from tidegate.kafka.zookeeper.multi_read import MultiRead, send_multi_read
from tidegate.kafka.zookeeper.session import requests
from tidegate.kafka.zookeeper.tree import AclEntry, Check, Create, CreateSequential, Delete, SetData


def test_kazoo_takes_a_request_that_is_not_its_own() -> None:
    result = send_multi_read(KazooClient("127.0.0.1:1"), MultiRead(["/a"]))
    with pytest.raises(ConnectionClosedError):
        result.get(timeout=1.0)


def test_kazoo_serializes_every_operation_and_null_data_stays_null() -> None:
    acl = tuple(AclEntry(entry.perms, entry.id.scheme, entry.id.id) for entry in OPEN_ACL_UNSAFE)
    operations = [
        Create("/a", None, acl),
        CreateSequential("/b", b"x", acl),
        SetData("/c", b"y", 3),
        Delete("/d", 4),
        Check("/e", 5),
    ]
    body = bytes(Transaction(requests(operations, "/root")).serialize())
    assert [
        path in body for path in (b"/root/a", b"/root/b", b"/root/c", b"/root/d", b"/root/e")
    ] == [True] * 5
    assert b"/root/a" + (-1).to_bytes(4, "big", signed=True) in body


def test_kazoo_has_the_errors_and_the_stat_that_bulk_answers_are_read_into() -> None:
    assert isinstance(EXCEPTIONS[-101](), NoNodeError)
    assert len(ZnodeStat._fields) == 11


def test_kafka_python_writes_a_metadata_request_as_brokers_since_0_11_read_it() -> None:
    topic = protocol.metadata.MetadataRequest.MetadataRequestTopic(name="orders")
    request = protocol.metadata.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    request.API_VERSION = 4
    request.with_header(correlation_id=7, client_id="tidegate")
    header = b"\x00\x03" + b"\x00\x04" + b"\x00\x00\x00\x07" + b"\x00\x08tidegate"
    body = b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\x00"
    assert (
        bytes(request.encode(version=4, header=True, framed=True))
        == len(header + body).to_bytes(4, "big") + header + body
    )


def test_kafka_python_reads_a_metadata_answer_into_the_names_that_are_asked_for() -> None:
    broker = b"\x00\x00\x00\x01" + b"\x00\x02k1" + b"\x00\x00\x23\x84" + b"\xff\xff"
    partition = (
        b"\x00\x00"
        + b"\x00\x00\x00\x00"
        + b"\x00\x00\x00\x01"
        + 2 * (b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01")
    )
    topic = b"\x00\x00" + b"\x00\x06orders" + b"\x00" + b"\x00\x00\x00\x01" + partition
    throttle, cluster, controller = b"\x00\x00\x00\x00", b"\x00\x03abc", b"\x00\x00\x00\x01"
    answer = (
        throttle + b"\x00\x00\x00\x01" + broker + cluster + controller + b"\x00\x00\x00\x01" + topic
    )
    read = protocol.metadata.MetadataResponse.decode(
        b"\x00\x00\x00\x07" + answer, version=4, header=True
    )
    assert (read.header.correlation_id, read.cluster_id, read.brokers[0].node_id) == (7, "abc", 1)
    (orders,) = read.topics
    assert (orders.name, orders.error_code, orders.partitions[0].leader_id) == ("orders", 0, 1)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_python_has_the_mechanisms_of_login_and_they_begin_with_the_user(
    mechanism: str,
) -> None:
    made = protocol.sasl_mechanism(mechanism)(
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="secret",
        security_protocol="SASL_SSL",
    )
    assert not made.is_done()
    assert b"alice" in made.auth_bytes()


def test_kafka_python_signs_for_msk_by_keys_that_it_is_given() -> None:
    signed = json.loads(
        protocol.AwsMskIamClient("host", "AKID", "secret", "eu-west-1", "session").first_message()
    )
    assert signed["action"] == "kafka-cluster:Connect"
    assert signed["x-amz-credential"].startswith("AKID/")
    assert {"algorithm", "date", "expires", "security-token", "signature", "signedheaders"} == {
        name.removeprefix("x-amz-") for name in signed if name.startswith("x-amz-")
    } - {"credential"}


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (protocol.admin, "DescribeConfigsRequest"),
        (protocol.sasl, "SaslHandshakeRequest"),
        (protocol.sasl, "SaslAuthenticateRequest"),
    ],
)
def test_kafka_python_still_has_the_other_requests_with_their_answers(
    module: ModuleType, name: str
) -> None:
    assert hasattr(module, name)
    assert hasattr(module, name.replace("Request", "Response"))
    assert protocol.for_code(29).__name__ == "TopicAuthorizationFailedError"
