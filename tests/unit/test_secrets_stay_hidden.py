"""No password, token or key is in any output of the operator: log lines at debug, statuses, Events,
metrics, the audit trail.

A whole operator runs on Secrets that it really reads; only Kafka itself is a double. Each value is
looked for in the forms in which libraries carry it. User names are no secret here: a refused login
is reported with the name that was refused.
"""

from __future__ import annotations

import base64
import json
import logging
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import generate_latest

from lab.process import patience, wait_until
from tests.unit.control.stage import Stage
from tests.unit.control.trails import Shelf
from tidegate.control.audit.sink import AuditQueue
from tidegate.control.audit.trail import AuditTrail
from tidegate.control.controller import Controller
from tidegate.control.manager import ControlLoop
from tidegate.control.runtime import KINDS, Wakeup
from tidegate.errors import Unauthorized
from tidegate.kafka.settings import TokenLogin
from tidegate.kube.api import ObjectRef
from tidegate.kube.cache import relist
from tidegate.metrics import set_up_logging
from tidegate.observe.connections import (
    brokers_connection,
    zookeeper_connection,
)
from tidegate.observe.observation import KafkaCluster
from tidegate.observe.secrets_and_hosts import SecretData, Secrets
from tidegate.resources.policy import KafkaCluster as KafkaSpec
from tidegate.settings import LogFormat, LogLevel

POLICY = "streaming/orders"
LOGIN = {"username": b"harbour-admiral", "password": b"ebb/flood+slack=7"}
CERTIFICATE = {
    "tls.crt": b"-----BEGIN CERTIFICATE-----\nSEAWALL",
    "tls.key": b"-----BEGIN PRIVATE KEY-----\nSLUICE",
}
SECRETS: Mapping[str, SecretData] = {
    "zookeeper": LOGIN,
    "clients": {
        "username": b"harbour-pilot",
        "password": b"spring&neap%9",
        **CERTIFICATE,
    },
    "prometheus": {"token": b"lighthouse.beam.3"},
}
SPEC: dict[str, Any] = {
    "kafka": {
        "bootstrapServers": "kafka:9092",
        "quotaStore": "ZooKeeper",
        "zookeeper": {
            "connect": "zk:2181",
            "authentication": {
                "type": "digest",
                "username": "harbour-admiral",
                "passwordSecret": {"secretName": "zookeeper", "password": "password"},
            },
        },
        "tls": {},
        "authentication": {
            "type": "scram-sha-256",
            "username": "harbour-pilot",
            "passwordSecret": {"secretName": "clients", "password": "password"},
            "certificateAndKey": {
                "secretName": "clients",
                "certificate": "tls.crt",
                "key": "tls.key",
            },
        },
    },
    "metrics": {
        "prometheus": {
            "url": "http://127.0.0.1:1",
            "insecure": True,
            "authentication": {
                "type": "bearer",
                "tokenSecret": {"secretName": "prometheus", "token": "token"},
            },
        }
    },
}


def forms(value: bytes) -> set[str]:
    """The forms of a value in a text: as it is, line by line, escaped, encoded for headers, Secrets
    and addresses.
    """
    text = value.decode("utf-8", "backslashreplace")
    return {
        *text.splitlines(),
        json.dumps(text)[1:-1],
        base64.b64encode(value).decode(),
        value.hex(),
        urllib.parse.quote(value, safe=""),
    }


def reported_values(secrets: Mapping[str, SecretData], output: str) -> set[str]:
    """The values that are in the output. The first line of a PEM file, which has its kind only, is
    allowed.
    """
    values = {
        value for secret in secrets.values() for key, value in secret.items() if key != "username"
    }
    logins = {
        secret["username"] + b":" + secret["password"]
        for secret in secrets.values()
        if LOGIN.keys() <= secret.keys()
    }
    return {
        form
        for value in values | logins
        for form in forms(value)
        if form in output and not form.startswith("-----")
    }


@dataclass
class House:
    """An operator of one policy that really reads its Secrets, and all of its output."""

    stage: Stage
    shelf: Shelf
    policy: ObjectRef
    trouble: Callable[[], None]

    def open(self, spec: KafkaSpec, *, secrets: Secrets, folder: Path) -> KafkaCluster:
        logins = (
            zookeeper_connection(spec, secrets, folder),
            brokers_connection(spec, secrets, folder),
        )
        structlog.get_logger("tidegate.test").debug(
            "Connecting", logins=logins, read=secrets, secrets=self.stage.kubernetes._secrets
        )
        self.trouble()
        login = logins[1].sasl
        if isinstance(login, TokenLogin):
            structlog.get_logger("tidegate.test").debug("Token", token=login.tokens.current())
        return KafkaCluster("zk:2181", self.stage.store, self.stage.leaders)

    def live(self, until: Callable[[], bool]) -> None:
        """Let the policy's own thread and that of its metrics run until something holds."""
        wakeup = Wakeup()
        controller = Controller(POLICY, self.stage.world, may_write=lambda: True, wake=wakeup.poke)
        loop = ControlLoop(POLICY, self.stage.world, controller, wakeup)
        loop.start()
        wait_until(until, "what the test waits for", timeout_seconds=10, poll_seconds=0.005)
        loop.ask_to_stop()
        assert loop.wait(patience(10))

    def output(self) -> str:
        """Everything but the log."""
        statuses = [self.stage.kubernetes.list_all(kind).items for kind in KINDS]
        metrics = generate_latest(self.stage.telemetry.registry).decode()
        return f"{statuses!r}{self.stage.kubernetes.events!r}{metrics}{self.shelf.lines!r}"

    def reasons(self) -> set[str]:
        """The reasons of the policy's conditions."""
        status = self.stage.kubernetes.get(self.policy).get("status") or {}
        return {entry["reason"] for entry in status.get("conditions", ())}


def house_of(
    secrets: Mapping[str, SecretData],
    trouble: Callable[[], None] = lambda: None,
    spec: Mapping[str, Any] = SPEC,
) -> House:
    stage, shelf = Stage(), Shelf()
    for name, data in secrets.items():
        stage.kubernetes.put_secret("streaming", name, data)
    house = House(stage, shelf, stage.policy(**spec), trouble)
    stage.tier()
    audit = AuditTrail(AuditQueue(shelf, "-", count=lambda *_: None, beside=False))
    stage.world = replace(stage.world, audit=audit, open_cluster=house.open)
    for kind in KINDS:
        relist(stage.cache, stage.kubernetes, kind)
    return house


def a_bug() -> None:
    password = LOGIN["password"].decode()  # a local of the frame that raises
    raise RuntimeError(f"after {len(password)} signs")


def a_refusal() -> None:
    raise Unauthorized("The brokers refuse this login.") from ConnectionError(
        "closed by the other side"
    )


@pytest.fixture(params=list(LogFormat))
def log(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[], str]]:
    """The log of the process at debug, in each format, libraries included."""
    loggers = [logging.getLogger(name) for name in (None, "tidegate")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    set_up_logging(request.param, LogLevel.DEBUG)
    yield lambda: capsys.readouterr().err
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
    structlog.reset_defaults()


TROUBLES: dict[str, tuple[Mapping[str, SecretData], Callable[[], None], str]] = {
    "all is well": (SECRETS, lambda: None, "InSync"),
    "a bug where the login is used": (SECRETS, a_bug, "InternalError"),
    "a login that is refused": (SECRETS, a_refusal, "NotAuthorized"),
    "a password under another key": (
        {**SECRETS, "clients": {**CERTIFICATE, "pass": b"spring&neap%9"}},
        a_bug,
        "SecretUnreadable",
    ),
    "a key without its certificate": (
        {**SECRETS, "clients": {**LOGIN, "tls.key": b"SLUICE"}},
        a_bug,
        "SecretUnreadable",
    ),
    "a password that is no text": (
        {**SECRETS, "zookeeper": {**LOGIN, "password": b"\xffflood"}},
        a_bug,
        "SecretUnreadable",
    ),
    "a token with a line break": (
        {**SECRETS, "prometheus": {"token": b"lighthouse\nbeam"}},
        lambda: None,
        "NotAuthorized",
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_no_value_of_a_secret_is_in_any_output(trouble: str, log: Callable[[], str]) -> None:
    secrets, raises, reason = TROUBLES[trouble]
    house = house_of(secrets, raises)
    house.live(lambda: reason in house.reasons())
    logged, output = log(), house.output()
    assert "Connecting" in logged or reason == "SecretUnreadable"
    assert reason in output
    assert reported_values(secrets, logged + output) == set()


TOKENS: Mapping[str, SecretData] = {
    **SECRETS,
    "tokens": {"clientSecret": b"moon&new+1 %", "token": b"opaque.fog.bank", "id": b"AKIDHARBOUR"},
}
TOKEN_LOGINS: dict[str, tuple[dict[str, Any], str]] = {
    "an endpoint that is unreachable": (
        {
            "type": "oauthbearer",
            "tokenEndpointUri": "https://127.0.0.1:1/token",
            "clientId": "harbour-pilot",
            "clientSecret": {"secretName": "tokens", "key": "clientSecret"},
        },
        "TokenUnavailable",
    ),
    "a token": (
        {"type": "oauthbearer", "accessToken": {"secretName": "tokens", "key": "token"}},
        "InSync",
    ),
    "an access key of AWS": (
        {
            "type": "aws-msk-iam",
            "region": "eu-west-1",
            "accessKey": {
                "secretName": "tokens",
                "accessKeyId": "id",
                "secretAccessKey": "clientSecret",
            },
        },
        "InSync",
    ),
}


@pytest.mark.parametrize("kind", TOKEN_LOGINS)
def test_no_token_and_nothing_that_makes_one_is_in_any_output(
    kind: str, log: Callable[[], str]
) -> None:
    login, reason = TOKEN_LOGINS[kind]
    house = house_of(TOKENS, spec={**SPEC, "kafka": {**SPEC["kafka"], "authentication": login}})
    house.live(lambda: reason in house.reasons())
    logged, output = log(), house.output()
    assert "Connecting" in logged
    assert reported_values(TOKENS, logged + output) <= {"AKIDHARBOUR"}
    assert base64.b64encode(b"https://kafka.eu")[:20].decode() not in logged + output, "signed"


@pytest.mark.parametrize(
    "form", ["ebb/flood+slack=7", "ZWJiL2Zsb29kK3NsYWNrPTc=", "ebb%2Fflood%2Bslack%3D7", "SLUICE"]
)
def test_the_sieve_finds_what_it_looks_for(form: str) -> None:
    assert reported_values(SECRETS, f"login={form!r}") == {form}


def test_a_bug_is_logged_with_its_traceback_so_that_the_sieve_has_something_to_look_at(
    log: Callable[[], str],
) -> None:
    house = house_of(SECRETS, a_bug)
    house.live(lambda: "InternalError" in house.reasons())
    assert "in a_bug" in log()


def test_secrets_are_read_by_the_names_that_the_policy_gives_and_no_others() -> None:
    house = house_of({**SECRETS, "unrelated": {"password": b"not asked for"}})
    asked: list[str] = []
    read = house.stage.kubernetes.read_secret

    def noted(namespace: str, name: str) -> Any:
        asked.append(f"{namespace}/{name}")
        return read(namespace, name)

    house.stage.kubernetes.read_secret = noted
    house.live(lambda: "InSync" in house.reasons() and len(set(asked)) == 3)
    assert set(asked) == {f"streaming/{name}" for name in SECRETS}
