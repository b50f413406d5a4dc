"""README's install block and docs/tutorials/beside-strimzi.md, pasted as they are printed by
somebody with an empty home directory (`make walk-strimzi`). Needs root.

The image is pushed to a registry of the lab, which stands for README's REGISTRY. Strimzi itself is
not there. Its place take: a broker of Kafka 4 with TLS, SCRAM-SHA-512, ACLs, and the names in DNS
that Strimzi gives its brokers; its KafkaUser resource; and a stand-in for its User Operator, which
makes logins, Secrets, ACLs and quotas of KafkaUsers, every few seconds instead of two minutes. An
editor's work, to save a block as a file and to take `etl` out of its tier, is done in between.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import AdminClient as Acls

from lab.cache import RunDirectory
from lab.kraft import KraftLab
from lab.kubernetes.kind import KindLab
from lab.network import Network
from lab.process import wait_until
from lab.proxy import Proxy
from lab.standing import cluster_tools, write_tools
from tests.doubles.user_operator import UserOperator, kafka_user
from tests.integration.commands.walked_tutorials import blocks, saved
from tests.integration.kafka.certificates import Certificates, make_certificates
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.quotas import alter, describe
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import Entity, QuotaKey
from tools.release.registry import Skopeo, local_registry

ROOT = Path(__file__).parents[1]
KAFKA_USERS = ROOT / "tests" / "integration" / "strimzi" / "kafkausers.yaml"
PAGE = "beside-strimzi.md"
STRIMZI_PAGE = ROOT / "docs" / "strimzi.md"
REGISTRY = "registry.example"  # what README's REGISTRY is replaced by; the node knows its address
NAMESPACE = "kafka"
BOOTSTRAP, BROKERS, BROKER = "orders-kafka-bootstrap", "orders-kafka-brokers", "orders-kafka-0"
BROKER_HOST = f"{BROKER}.{BROKERS}.{NAMESPACE}.svc"
SECURE_PORT = 9093
RECONCILED_EVERY_SECONDS = 5.0
PROMISED_SECONDS = 30.0  # the page's half a minute
PRODUCE, FETCH, REQUEST = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
)
DECLARED = {
    "etl": {"producerByteRate": 3_000_000, "consumerByteRate": 20_000_000, "requestPercentage": 55},
    "checkout-web": {"producerByteRate": 5_000_000, "consumerByteRate": 10_000_000},
    "checkout-app": {"consumerByteRate": 10_000_000},
}
IN_KAFKA = {
    "etl": {PRODUCE: "3000000", FETCH: "20000000", REQUEST: "55"},
    "checkout-web": {PRODUCE: "5000000", FETCH: "10000000"},
    "checkout-app": {FETCH: "10000000"},
}
BACK_IN_KAFKA = {PRODUCE: "4000000", FETCH: "20000000"}  # what the page restores
_README_BLOCK = re.compile(r"^## Install\n.*?^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TIMEOUT_SECONDS = 900


# --- what Strimzi would have made -----------------------------------------------------------------


@contextmanager
def strimzi_broker(network: Network, certificates: Certificates) -> Iterator[KraftLab]:
    """A broker with an authorizer, that advertises itself as one of Strimzi's."""
    address = f"{network.gateway.rpartition('.')[0]}.111"
    advertised = {
        "INTERNAL": f"{address}:9091",
        "PLAIN": f"{address}:9092",
        "SASL": f"{BROKER_HOST}:{SECURE_PORT}",
    }
    listener = "listener.name.sasl.ssl"
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # the lab itself, on the plain listener
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAIN:PLAINTEXT,SASL:SASL_SSL",
        "advertised.listeners": ",".join(f"{name}://{at}" for name, at in advertised.items()),
        **certificates.server_settings(
            key_store=f"{listener}.keystore", trust_store=f"{listener}.truststore"
        ),
    }
    with KraftLab(brokers=1, beside=network, server_properties=settings) as kafka:
        assert kafka.broker(1).plan.host == address
        yield kafka


def named(address: str) -> list[dict[str, Any]]:
    """Services of the names that Strimzi gives a Kafka `orders` and its broker 0."""
    services: list[dict[str, Any]] = []
    ports = [{"name": "tcp-clientstls", "port": SECURE_PORT}]
    for service, extra in ((BOOTSTRAP, {}), (BROKERS, {"clusterIP": "None"})):
        metadata = {"name": service, "namespace": NAMESPACE}
        services += [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": {"ports": ports, **extra},
            },
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {**metadata, "labels": {"kubernetes.io/service-name": service}},
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": [{"addresses": [address], "hostname": BROKER}],
            },
        ]
    return services


def secret(name: str, **entries: bytes) -> dict[str, Any]:
    """A Secret as Strimzi makes it, with the label that the page asks for."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"strimzi.io/cluster": "orders", "tidegate.io/credentials": "true"},
        },
        "data": {
            key.replace("_", "."): base64.b64encode(value).decode()
            for key, value in entries.items()
        },
    }


@dataclass
class Strimzi:
    """The stand-in for the User Operator, on a thread of its own while the context is entered."""

    kind: KindLab
    kafka: KraftLab
    passwords: dict[str, str] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._client = AdminClient(KafkaConnection((self.kafka.bootstrap_servers,)))
        self._is_over = threading.Event()
        self.operator = UserOperator(self.quotas, self._write, self._kafka_users)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Reconcile until the context ends; what went wrong meanwhile is raised then."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join(60)
            self._client.close()
        if self.failures:
            raise self.failures[0]

    def quotas(self) -> dict[Entity, Mapping[QuotaKey, str]]:
        """Every quota in Kafka."""
        return dict(describe(self._client, None, "__tidegate_ledger"))

    def quotas_of_users(self) -> dict[str, dict[QuotaKey, str]]:
        """The same by user; an entity that is no user alone is an error."""
        found = self.quotas()
        return {str(entity.user): dict(values) for entity, values in found.items()}

    def _run(self) -> None:
        while not self._is_over.wait(RECONCILED_EVERY_SECONDS):
            try:
                for one in self._kafka_users():
                    if one["metadata"]["name"] not in self.passwords:
                        self._make_login(one)
                self.operator.reconcile_all()
            except BaseException as failure:
                self.failures.append(failure)
                raise

    def _write(self, entity: Entity, values: Mapping[QuotaKey, str | None]) -> None:
        alter(self._client, {entity: values}, "__tidegate_ledger")

    def _kafka_users(self) -> list[Mapping[str, Any]]:
        answer = self.kind.kubectl("get", "kafkausers", "-n", NAMESPACE, "-o", "json")
        return list(json.loads(answer)["items"])

    def _make_login(self, kafka_user: Mapping[str, Any]) -> None:
        """SCRAM credentials, a Secret with the labels of the template, and exactly its ACLs."""
        name, spec = kafka_user["metadata"]["name"], kafka_user["spec"]
        password = self.passwords[name] = secrets.token_urlsafe(24)
        self.kafka.create_scram_user(name, password, mechanism="SCRAM-SHA-512")
        made = secret(name, password=password.encode())
        labels = spec.get("template", {}).get("secret", {}).get("metadata", {}).get("labels", {})
        made["metadata"]["labels"] = {"strimzi.io/cluster": "orders", **labels}
        bindings = [
            AclBinding(
                *_resource(acl["resource"]),
                ResourcePatternType.LITERAL,
                f"User:{name}",
                "*",
                AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()],
                AclPermissionType.ALLOW,
            )
            for acl in spec.get("authorization", {}).get("acls", ())
            for operation in acl["operations"]
        ]
        if bindings:
            client = Acls({"bootstrap.servers": self.kafka.bootstrap_servers})
            for done in client.create_acls(bindings).values():
                done.result(20)
        self.kind.kubectl("apply", "-f", "-", input=json.dumps(made))


def _resource(acl: Mapping[str, str]) -> tuple[ResourceType, str]:
    if acl["type"] == "cluster":
        return ResourceType.BROKER, "kafka-cluster"
    kind = {"topic": ResourceType.TOPIC, "transactionalId": ResourceType.TRANSACTIONAL_ID}
    return kind[acl["type"]], acl["name"]


# --- somebody at a shell --------------------------------------------------------------------------


@dataclass(frozen=True)
class Walker:
    """Somebody at a shell, with an empty home directory and a clone of the repository."""

    home: Path
    clone: Path
    tools: Path
    kubeconfig: Path

    def paste(self, block: str, *, place: Path | None = None) -> str:
        """What the lines print; the first that fails ends it."""
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", f"set -e -o pipefail\n{block}"],
            cwd=place or self.clone,
            env={
                **os.environ,  # how packages are reached from here, for `make image`
                "HOME": str(self.home),
                "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
                "KUBECONFIG": str(self.kubeconfig),
                "PATH": f"{self.tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                "LANG": "C.UTF-8",
                "COLUMNS": "200",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
        print(f"$ {block.rstrip()}\n{done.stdout}  ({time.monotonic() - began:.1f} s)", flush=True)
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout


@dataclass(frozen=True)
class Cluster:
    """All that the pages take for given."""

    walker: Walker
    kind: KindLab
    strimzi: Strimzi
    push: Callable[[Path, str], None]

    def reason(self, user: str) -> str:
        """Why the tier that has this user alone is as it is; "" without one."""
        found = json.loads(self.kind.kubectl("get", "bt", "-n", NAMESPACE, "-o", "json"))
        for tier in found["items"]:
            if [member["user"] for member in tier["spec"]["members"]] == [user]:
                for condition in (tier.get("status") or {}).get("conditions", ()):
                    if condition["type"] == "Ready":
                        return str(condition["reason"])
        return ""

    def wait_for(self, user: str, reason: str) -> float:
        """The seconds until that is so, at most the page's half a minute and what a busy machine
        adds.
        """
        began = time.monotonic()
        wait_until(
            lambda: self.reason(user) == reason,
            f"{user} to be {reason}",
            timeout_seconds=PROMISED_SECONDS + 10,
            poll_seconds=0.5,
        )
        return time.monotonic() - began


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Kubernetes with a Kafka of Strimzi's in it, three KafkaUsers, and an empty registry."""
    with ExitStack() as stack:
        enter = stack.enter_context
        registry = enter(local_registry())
        network = Network(enter(RunDirectory()))
        hosts = (f"{BOOTSTRAP}.{NAMESPACE}.svc", BROKER_HOST)
        certificates = make_certificates(
            folder / "certificates", names=[f"DNS:{host}" for host in hosts]
        )
        kafka = enter(strimzi_broker(network, certificates))
        way = enter(Proxy(("localhost", int(registry.rpartition(":")[2])), host=network.gateway))
        kind = enter(KindLab(network, mirrors={REGISTRY: f"http://{network.gateway}:{way.port}"}))
        kind.kubectl("apply", "-f", str(KAFKA_USERS))
        kind.kubectl("create", "namespace", NAMESPACE)
        authority = secret("orders-cluster-ca-cert", ca_crt=certificates.authority.read_bytes())
        items = [*named(kafka.broker(1).plan.host), authority]
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        kind.kubectl("apply", "-f", "-", input=json.dumps(listed))
        kind.kubectl(
            "wait",
            "--for=condition=Established",
            "crd/kafkausers.kafka.strimzi.io",
            "--timeout=30s",
        )
        users = [kafka_user(name, quotas=quotas) for name, quotas in DECLARED.items()]
        listed["items"] = users
        kind.kubectl("apply", "-f", "-", input=json.dumps(listed))
        strimzi = Strimzi(kind, kafka)
        enter(strimzi.running())

        home, clone, tools = folder / "home", folder / "home" / "tidegate", folder / "bin"
        clone.mkdir(parents=True)
        for name in ("charts", "examples"):
            (clone / name).symlink_to(ROOT / name)
        write_tools(tools, cluster_tools(kind))

        def push(archive: Path, name: str) -> None:
            skopeo = Skopeo(folder / "skopeo", plain_http=True)
            skopeo.push_archive(archive, f"{registry}/{name}")

        yield Cluster(Walker(home, clone, tools, kind.kubeconfig), kind, strimzi, push)


@pytest.mark.timeout(_TIMEOUT_SECONDS)
def test_readme_installs_it_and_a_user_moves_from_strimzi_and_back(tmp_path: Path) -> None:
    with cluster(tmp_path) as world:
        walker, theirs = world.walker, world.strimzi
        readme = _README_BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))
        assert readme is not None
        make_image, _, install = readme[1].partition("\n")
        walker.paste(make_image, place=ROOT)
        (archive,) = (ROOT / "out" / "image").glob("tidegate-[0-9]*.tar")
        world.push(archive, archive.stem.replace("-", ":", 1))
        assert "REGISTRY" in install
        walker.paste(install.replace("REGISTRY", REGISTRY), place=ROOT)

        log_in, apply_policy, apply_tiers, move, look, back = blocks(PAGE, "sh")
        (policy,) = blocks(PAGE, "yaml")
        walker.paste(log_in)
        wait_until(lambda: "tidegate" in theirs.passwords, "the login", timeout_seconds=30)
        examined = walker.paste(f"{saved(policy, 'policy.yaml')}\n{apply_policy}")
        assert "answer as tidegate by scram-sha-512 with TLS" in examined
        assert "Strimzi's cluster kafka/orders has 4 KafkaUsers" in examined
        assert "problem" not in examined

        walker.paste(apply_tiers)
        for user in DECLARED:
            world.wait_for(user, "OwnedByStrimzi")
        in_pod = f"kubectl exec -n tidegate deployment/tidegate -- tidegate plan {NAMESPACE}/orders"
        assert in_pod in STRIMZI_PAGE.read_text(encoding="utf-8")
        assert "Nothing would be written" in walker.paste(in_pod)
        assert theirs.quotas_of_users() == IN_KAFKA

        walker.paste(move)
        took = world.wait_for("etl", "Contract")
        print(f"etl is at its contract {took:.0f} s after its quotas left the KafkaUser.")
        explained = walker.paste(look)
        assert explained.count("Set by Tidegate") == len(IN_KAFKA["etl"])
        assert "Before Tidegate it was 20 MB/s (20000000 B/s)." in explained
        time.sleep(3 * RECONCILED_EVERY_SECONDS)
        # enforced, and nobody but Strimzi writes for the others, and Strimzi no more for etl
        assert theirs.quotas_of_users() == IN_KAFKA
        assert len(theirs.operator.written) == len(DECLARED)
        assert {world.reason(user) for user in DECLARED} == {"OwnedByStrimzi", "Contract"}

        walker.paste(back)
        took = world.wait_for("etl", "OwnedByStrimzi")
        print(f"etl is Strimzi's again after {took:.0f} s.")
        wait_until(
            lambda: theirs.quotas_of_users()["etl"] == BACK_IN_KAFKA,
            "what the KafkaUser says",
            timeout_seconds=3 * RECONCILED_EVERY_SECONDS,
        )
        # an editor takes etl out of its tier, whose only member it is
        (tier,) = [
            one["metadata"]["name"]
            for one in yaml.safe_load_all((walker.clone / "tiers.yaml").read_text())
            if one["spec"]["members"][0]["user"] == "etl"
        ]
        walker.paste(f"kubectl delete bt/{tier} bbp/orders -n {NAMESPACE}")
        assert theirs.quotas_of_users() == {**IN_KAFKA, "etl": BACK_IN_KAFKA}
