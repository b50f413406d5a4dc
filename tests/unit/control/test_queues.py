"""What is run and reported of DelayQueues, and the thread that looks after them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lab.process import wait_until
from tests.doubles.kubernetes import InMemoryKubernetes
from tests.unit.resources.documents import ABSENT, policy, queue
from tidegate.control.queues.forwarders import (
    ForwarderKeeper,
    ForwardersSeen,
    pods_of,
    require_login,
)
from tidegate.control.queues.report import (
    QueueFinding,
    QueueTask,
    reading_of,
    status_of,
    verdicts_of,
)
from tidegate.control.queues.watch import (
    REFRESH_SECONDS,
    QueueDependencies,
    QueueReport,
    QueueWatch,
)
from tidegate.errors import LeaseLost, TidegateError, Unreachable, UserActionRequired
from tidegate.kafka.delay_queues import LevelSeen
from tidegate.kube.api import DEPLOYMENTS, DISRUPTION_BUDGETS
from tidegate.kube.forwarders import deployment_body
from tidegate.observe.declared import policy_from
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.queue_metrics import QueueReading
from tidegate.queues.names import LevelTopic
from tidegate.queues.position import PositionNote
from tidegate.resources import parse_policy, parse_queue
from tidegate.settings import UNBOUNDED, ForwarderOffer, PodToken
from tidegate_logic.queues.levels import FoundTopic, Level, LevelDecision
from tidegate_logic.queues.shift import Pace, Shift
from tidegate_logic.reasons import Reason

OFFER = ForwarderOffer(image="forwarder:1", pull_secrets=("registry",))
SECRETS = Secrets(
    "streaming",
    {
        "forwarder": {"password": b"hidden", "user.crt": b"cert", "user.key": b"key"},
        "kafka-cluster-ca-cert": {"ca.crt": b"authority"},
    },
)
KAFKA = parse_policy(policy(), strict=True).spec.kafka
PLAIN: dict[str, object] = {"authentication": ABSENT, "tls": ABSENT}


def raw_queue(**metadata: Any) -> dict[str, Any]:
    document = queue()
    document["metadata"] |= {"uid": "queue-uid", "generation": 1, **metadata}
    return document


def arguments(changes: Mapping[str, object] | None = None, kafka: Any = KAFKA) -> Sequence[str]:
    parsed = parse_queue(queue(changes), strict=True)
    return pods_of(parsed, kafka, OFFER, SECRETS).arguments


# --- the Pods -------------------------------------------------------------------------------------


def test_forwarders_get_the_queues_settings_and_its_own_login() -> None:
    assert arguments() == (
        "--prefix=shop.unpaid",
        "--bootstrap-servers=kafka-1:9092,kafka-2:9092",
        "--guarantee=AtLeastOnce",
        "--allowed=orders.*",
        "--allowed=returns",
        "--default-target=orders.due",
        "--cancellable",
        "--hop-delay=5x2",
        "--hop-delay=600x4",
        "--metrics-port=8080",
        "--client-tls",
        "--client-authentication=scram-sha-512",
        "--client-username=forwarder",
        "--client-credentials-file=/login",
        "--member=$(POD_NAME)",
    )


def test_no_password_is_an_argument_and_only_the_named_keys_are_mounted() -> None:
    pods = pods_of(parse_queue(queue(), strict=True), KAFKA, OFFER, SECRETS)
    body = deployment_body(raw_queue(), pods)
    assert "hidden" not in str(body)
    (login,) = (
        one for one in body["spec"]["template"]["spec"]["volumes"] if one["name"] == "login"
    )
    assert {
        (source["secret"]["name"], item["key"], item["path"])
        for source in login["projected"]["sources"]
        for item in source["secret"]["items"]
    } == {
        ("forwarder", "password", "password"),
        ("forwarder", "user.crt", "tls.crt"),
        ("forwarder", "user.key", "tls.key"),
        ("kafka-cluster-ca-cert", "ca.crt", "ca.crt"),
    }


TOKENS = {
    "type": "oauthbearer",
    "tokenEndpointUri": "https://idp/token",
    "clientId": "forwarder",
    "clientSecret": {"secretName": "forwarder", "key": "password"},
    "tlsTrustedCertificates": [{"secretName": "kafka-cluster-ca-cert", "certificate": "ca.crt"}],
    "saslExtensions": {"logicalCluster": "lkc-1"},
}
ACCESS_KEY = {"secretName": "forwarder", "accessKeyId": "user.crt", "secretAccessKey": "password"}
AWS = {"type": "aws-msk-iam", "region": "eu-west-1", "accessKey": ACCESS_KEY}


@pytest.mark.parametrize(
    ("login", "options", "files"),
    [
        (
            TOKENS,
            [
                "--client-login=tokenEndpointUri=https://idp/token",
                "--client-login=clientId=forwarder",
                "--client-login=extension.logicalCluster=lkc-1",
            ],
            {"clientSecret": "password", "tokenEndpoint.crt": "ca.crt"},
        ),
        (
            AWS,
            ["--client-login=region=eu-west-1"],
            {"accessKeyId": "user.crt", "secretAccessKey": "password"},
        ),
    ],
    ids=["tokens", "aws"],
)
def test_of_a_login_by_tokens_only_the_secrets_are_files(
    login: dict[str, object], options: list[str], files: dict[str, str]
) -> None:
    pods = pods_of(
        parse_queue(queue({"authentication": login}), strict=True), KAFKA, OFFER, SECRETS
    )
    assert [one for one in pods.arguments if one.startswith("--client-login")] == options
    assert {one.path: one.key for one in pods.files} == {"ca.crt": "ca.crt", **files}
    assert "hidden" not in str(pods)


BY_TOKEN = {"type": "oauthbearer", "accessTokenFile": "kafka"}


@pytest.mark.parametrize("tls", [{"tls": {}}, {}], ids=["no files", "an authority"])
def test_a_token_of_the_pods_own_account_is_a_file_beside_the_others(tls: dict[str, Any]) -> None:
    token = PodToken("streaming", "kafka", "brokers", 600)
    offer = replace(OFFER, tokens=(PodToken("other", "kafka", "x"), token))
    parsed = parse_queue(queue({"authentication": BY_TOKEN, **tls}), strict=True)
    pods = pods_of(parsed, KAFKA, offer, SECRETS)
    assert pods.arguments.count("--client-credentials-file=/login") == 1
    spec = deployment_body(raw_queue(), pods)["spec"]["template"]["spec"]
    (login,) = (one for one in spec["volumes"] if one["name"] == "login")
    assert login["projected"]["sources"][-1] == {
        "serviceAccountToken": {"path": "token", "audience": "brokers", "expirationSeconds": 600}
    }
    assert not spec["automountServiceAccountToken"]  # none for Kubernetes


def test_a_token_that_the_namespace_does_not_have_starts_nothing() -> None:
    offer = replace(OFFER, tokens=(PodToken("other", "kafka", "brokers"),))
    parsed = parse_queue(queue({"authentication": BY_TOKEN}), strict=True)
    with pytest.raises(UserActionRequired) as refused:
        pods_of(parsed, KAFKA, offer, SECRETS)
    assert refused.value.reason is Reason.TOKEN_UNAVAILABLE


def test_a_queue_without_a_login_mounts_nothing() -> None:
    pods = pods_of(parse_queue(queue(PLAIN), strict=True), KAFKA, OFFER, SECRETS)
    assert not pods.files
    volumes = deployment_body(raw_queue(), pods)["spec"]["template"]["spec"]["volumes"]
    assert [one["name"] for one in volumes] == ["scratch"]


def test_zookeeper_is_named_only_where_it_wants_no_login() -> None:
    plain = {"kafka.zookeeper": {"connect": "zk-1:2181/kafka"}}
    kafka = parse_policy(policy(plain), strict=True).spec.kafka
    assert "--zookeeper=zk-1:2181/kafka" in arguments(kafka=kafka)
    assert not any(one.startswith("--zookeeper") for one in arguments())


def test_a_variable_in_a_name_stays_text() -> None:
    changes = {"authentication.username": "$(POD_NAME)"}
    assert "--client-username=$$(POD_NAME)" in arguments(changes)


def test_more_than_one_trusted_certificate_is_refused() -> None:
    parsed = parse_queue(
        queue({"tls.trustedCertificates.0": {"secretName": "forwarder", "pattern": "user.*"}}),
        strict=True,
    )
    with pytest.raises(UserActionRequired) as refused:
        pods_of(parsed, KAFKA, OFFER, SECRETS)
    assert refused.value.reason is Reason.INVALID_SPEC
    assert "2 certificates" in refused.value.message


def test_a_missing_key_is_named_before_anything_starts() -> None:
    secrets = Secrets("streaming", {**SECRETS.data, "forwarder": {"password": b"x"}})
    with pytest.raises(UserActionRequired) as refused:
        pods_of(parse_queue(queue(), strict=True), KAFKA, OFFER, secrets)
    assert refused.value.reason is Reason.SECRET_UNREADABLE
    assert "user.crt" in refused.value.message


@pytest.mark.parametrize("missing", ["authentication", "tls"])
def test_forwarders_never_use_the_policys_login(missing: str) -> None:
    spec = parse_queue(queue(), strict=True)
    bent = replace(spec, spec=spec.spec.model_copy(update={missing: None}))
    with pytest.raises(UserActionRequired) as refused:
        require_login(bent, KAFKA)
    assert refused.value.reason is Reason.LOGIN_MISSING
    assert f"spec.{missing}" in refused.value.message
    open_kafka = KAFKA.model_copy(update={"authentication": None, "tls": None})
    require_login(bent, open_kafka)


def keeper(kubernetes: InMemoryKubernetes, *, may_write: bool = True) -> ForwarderKeeper:
    return ForwarderKeeper(
        kubernetes, OFFER, bounds=UNBOUNDED, may_write=lambda: may_write, wall=lambda: 1.8e9
    )


def with_secrets(labels: Mapping[str, str]) -> InMemoryKubernetes:
    kubernetes = InMemoryKubernetes()
    for name, data in SECRETS.data.items():
        kubernetes.put_secret("streaming", name, data, labels)
    return kubernetes


def test_a_secret_that_is_not_meant_for_tidegate_is_not_mounted() -> None:
    kubernetes = with_secrets({})
    with pytest.raises(UserActionRequired) as refused:
        keeper(kubernetes).keep(raw_queue(), parse_queue(queue(), strict=True), KAFKA)
    assert refused.value.reason is Reason.SECRET_NOT_ALLOWED
    assert kubernetes.read_managed(DEPLOYMENTS, "streaming", "unpaid-forwarders") is None


def test_what_is_as_wanted_is_not_applied_again_and_an_edit_is_undone() -> None:
    kubernetes, parsed = (
        with_secrets({"tidegate.io/credentials": "true"}),
        parse_queue(queue(), strict=True),
    )
    kept = keeper(kubernetes)
    kept.keep(raw_queue(), parsed, KAFKA)
    first = kubernetes.read_managed(DEPLOYMENTS, "streaming", "unpaid-forwarders")
    kept.keep(raw_queue(), parsed, KAFKA)
    assert kubernetes.read_managed(DEPLOYMENTS, "streaming", "unpaid-forwarders") == first
    kubernetes.edit_managed(
        DEPLOYMENTS,
        "streaming",
        "unpaid-forwarders",
        lambda found: found["spec"].update(replicas=9),
    )
    seen = kept.keep(raw_queue(), parsed, KAFKA)
    assert seen.wanted == 2
    assert kubernetes.read_managed(DISRUPTION_BUDGETS, "streaming", "unpaid-forwarders")


def test_without_the_lease_no_deployment_is_made_or_deleted() -> None:
    kubernetes, parsed = (
        with_secrets({"tidegate.io/credentials": "true"}),
        parse_queue(queue(), strict=True),
    )
    keeper(kubernetes, may_write=False).keep(raw_queue(), parsed, KAFKA)
    assert kubernetes.read_managed(DEPLOYMENTS, "streaming", "unpaid-forwarders") is None
    keeper(kubernetes).keep(raw_queue(), parsed, KAFKA)
    keeper(kubernetes, may_write=False).remove(raw_queue())
    assert kubernetes.read_managed(DEPLOYMENTS, "streaming", "unpaid-forwarders")
    keeper(kubernetes).remove(raw_queue(uid="another"))
    assert kubernetes.read_managed(DEPLOYMENTS, "streaming", "unpaid-forwarders")
    keeper(kubernetes).remove(raw_queue())
    assert kubernetes.read_managed(DEPLOYMENTS, "streaming", "unpaid-forwarders") is None


# --- the report -----------------------------------------------------------------------------------

TOPIC = LevelTopic("shop.unpaid", 5, 0)
FOUND = FoundTopic(settings={}, begin=0, end=9, position=7, position_known=True, late_seconds=3.4)
SEEN = LevelSeen(FOUND, PositionNote(owner="pod-0"))
FINDING = QueueFinding(
    raw_queue(),
    "shop.unpaid",
    levels={TOPIC: SEEN},
    decision=LevelDecision(),
    per_second={5: 2.6},
    dead=0,
    forwarders=ForwardersSeen(2, 2, 1000.0),
)
AWAY = Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answers.")
LEVEL = Level(5, 0)
SHIFT = Shift(3600, 20_000_000)
HELD = replace(FINDING, shift=SHIFT, pace=Pace(SHIFT, frozenset({1, 3})))
LATE = replace(FINDING, shift=SHIFT, pace=Pace(SHIFT))


def noted(**note: Any) -> dict[LevelTopic, LevelSeen]:
    return {TOPIC: replace(SEEN, note=PositionNote(owner="pod-0", **note))}


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (FINDING, ("True", Reason.FORWARDING)),
        (QueueFinding(raw_queue()), ("Unknown", Reason.STARTING)),
        (replace(FINDING, trouble=AWAY), ("Unknown", Reason.BROKERS_UNREACHABLE)),
        (
            replace(FINDING, trouble=UserActionRequired(Reason.PREFIX_TAKEN, "x")),
            ("False", Reason.PREFIX_TAKEN),
        ),
        (
            replace(FINDING, decision=LevelDecision(taken={LEVEL: "it is full"})),
            ("False", Reason.TOPIC_TAKEN),
        ),
        (
            replace(
                FINDING,
                levels={TOPIC: replace(SEEN, problem=TidegateError(Reason.NEWER_VERSION, "newer"))},
            ),
            ("False", Reason.NEWER_VERSION),
        ),
        (
            replace(FINDING, raw=raw_queue(deletionTimestamp="2026-01-01T00:00:00Z")),
            ("False", Reason.DRAINING),
        ),
        (
            replace(
                FINDING,
                decision=LevelDecision(create=(LEVEL,)),
                held_back=(Reason.OBSERVING, "Mode is Observe"),
            ),
            ("False", Reason.OBSERVING),
        ),
        (
            replace(FINDING, held_back=(Reason.PAUSED, "Paused")),
            ("True", Reason.FORWARDING),
        ),
        (
            replace(FINDING, forwarders_trouble=UserActionRequired(Reason.SECRET_UNREADABLE, "x")),
            ("False", Reason.SECRET_UNREADABLE),
        ),
        (replace(FINDING, forwarders=ForwardersSeen(0, 2, 60.0)), ("False", Reason.STARTING)),
        (
            replace(FINDING, forwarders=ForwardersSeen(0, 2, 121.0)),
            ("False", Reason.FORWARDERS_MISSING),
        ),
        (replace(FINDING, levels=noted(error="refused")), ("False", Reason.FORWARDING_FAILS)),
        (
            replace(FINDING, levels={TOPIC: replace(SEEN, found=replace(FOUND, end=None))}),
            ("Unknown", Reason.BROKERS_UNREACHABLE),
        ),
    ],
    ids=lambda value: str(value[1]) if isinstance(value, tuple) else "",
)
def test_ready_says_why_messages_are_not_sent_on(
    finding: QueueFinding, expected: tuple[str, Reason]
) -> None:
    ready = verdicts_of(finding)[0]
    assert (ready.type, ready.status.value, ready.reason) == ("Ready", *expected)


@pytest.mark.parametrize(
    ("finding", "kind", "expected"),
    [
        (FINDING, "RecordsLost", ("False", Reason.FORWARDING)),
        (FINDING, "ClockWrong", ("False", Reason.FORWARDING)),
        (FINDING, "DeadLetters", ("False", Reason.FORWARDING)),
        (replace(FINDING, levels=noted(lost=2)), "RecordsLost", ("True", Reason.RECORDS_LOST)),
        (
            replace(FINDING, levels={TOPIC: replace(SEEN, found=replace(FOUND, begin=8))}),
            "RecordsLost",
            ("True", Reason.RECORDS_LOST),
        ),
        (replace(FINDING, levels=noted(clock_ms=50)), "ClockWrong", ("False", Reason.FORWARDING)),
        (replace(FINDING, levels=noted(clock_ms=-51)), "ClockWrong", ("True", Reason.CLOCK_WRONG)),
        (replace(FINDING, dead=4), "DeadLetters", ("True", Reason.DEAD_LETTERS)),
        (replace(FINDING, dead=None), "DeadLetters", ("Unknown", Reason.BROKERS_UNREACHABLE)),
        (replace(FINDING, shift=SHIFT), "Held", ("False", Reason.FORWARDING)),
        (HELD, "Held", ("True", Reason.BROKERS_OVER_LIMIT)),
        (LATE, "Held", ("True", Reason.SENDING_LATE)),
        (replace(FINDING, waiting_helps=False), "Held", ("False", Reason.SHIFT_CANNOT_HELP)),
    ],
)
def test_what_needs_attention_has_a_condition_of_its_own(
    finding: QueueFinding, kind: str, expected: tuple[str, Reason]
) -> None:
    found = next(one for one in verdicts_of(finding) if one.type == kind)
    assert (found.status.value, found.reason) == expected


def test_a_queue_without_shift_says_nothing_of_waiting() -> None:
    assert "Held" not in {one.type for one in verdicts_of(FINDING)}


def test_the_status_has_the_figures_of_every_delay() -> None:
    assert status_of(FINDING).as_document() == {
        "topicPrefix": "shop.unpaid",
        "delays": [
            {"seconds": 5, "topics": 1, "waiting": 2, "oldestLateSeconds": 3, "perSecond": 3}
        ],
        "forwarders": [{"name": "pod-0", "topics": 1}],
        "dead": 0,
        "summary": {"waiting": 2, "oldestLateSeconds": 3},
    }


def test_what_is_unknown_is_left_out_of_the_status_and_never_0() -> None:
    unknown = replace(FOUND, end=None, late_seconds=None)
    finding = replace(
        FINDING,
        levels={TOPIC: LevelSeen(unknown), replace(TOPIC, number=1): SEEN},
        per_second={},
        dead=None,
    )
    document = status_of(finding).as_document()
    assert document["delays"] == [{"seconds": 5, "topics": 2}]
    assert "dead" not in document
    assert document["summary"] == {}


OTHER_TOPIC = LevelTopic("shop.unpaid", 600, 0)


def test_metrics_have_the_figures_of_a_look_and_the_clock_that_is_furthest_off() -> None:
    levels = {
        TOPIC: replace(SEEN, note=PositionNote(owner="pod-0", lost=2, clock_ms=30)),
        OTHER_TOPIC: replace(SEEN, note=PositionNote(owner="pod-1", lost=1, clock_ms=-80)),
    }
    reading = reading_of(replace(HELD, levels=levels, dead=4))
    assert (reading.lost, reading.dead, reading.clock_ms) == (3, 4, -80)
    assert reading.clock_seconds == -0.08
    assert (reading.waiting, reading.is_held) == (2 * (FINDING.waiting or 0), True)
    assert reading.oldest_late_seconds == FINDING.oldest_late_seconds


def test_what_is_not_known_has_no_figure_and_a_part_is_no_sum() -> None:
    assert reading_of(replace(FINDING, decision=None, trouble=AWAY)) == QueueReading()
    unread = replace(SEEN, problem=TidegateError(Reason.NEWER_VERSION, "newer"))
    levels = {**noted(lost=2), OTHER_TOPIC: unread}
    assert reading_of(replace(FINDING, levels=levels)).lost is None
    hidden = replace(SEEN, found=replace(FOUND, end=None))
    partly = reading_of(replace(FINDING, levels={**noted(lost=2), OTHER_TOPIC: hidden}))
    assert (partly.lost, partly.waiting) == (None, None)
    # a topic that no forwarder has taken yet says nothing of a clock
    assert (
        reading_of(replace(FINDING, levels={TOPIC: replace(SEEN, note=PositionNote())})).clock_ms
        is None
    )


@pytest.mark.parametrize(
    ("changes", "wanted", "available"),
    [
        ({"forwarders": ForwardersSeen(1, 3, 60.0)}, 3, 1),
        ({"forwarders": None, "forwarders_trouble": AWAY}, 2, 0),
        ({"forwarders": None, "held_back": (Reason.OBSERVING, "Mode is Observe")}, 0, 0),
    ],
    ids=["running", "cannot start", "not to start"],
)
def test_forwarders_that_are_missing_count_only_where_some_are_wanted(
    changes: dict[str, Any], wanted: int, available: int
) -> None:
    reading = reading_of(replace(FINDING, **changes))
    assert (reading.forwarders_wanted, reading.forwarders_available) == (wanted, available)


def test_conditions_read_like_this(golden: Any) -> None:
    strict = {**raw_queue(), "spec": queue({"guarantee": "ExactlyOnce"})["spec"]}
    findings = {
        "forwarding": FINDING,
        "draining": replace(
            FINDING, raw=raw_queue(deletionTimestamp="2026-01-01T00:00:00Z"), forwarders=None
        ),
        "taken": replace(FINDING, decision=LevelDecision(taken={LEVEL: "it has 3 partitions"})),
        "no forwarder": replace(FINDING, forwarders=ForwardersSeen(0, 2, 121.0)),
        "held": HELD,
        "late": LATE,
        "useless": replace(FINDING, waiting_helps=False),
        "trouble": replace(FINDING, levels=noted(lost=2, clock_ms=-80), dead=4),
        "exactly once": replace(FINDING, raw=strict, dead=4),
    }
    golden(
        "\n".join(
            f"{name}: {one.type}={one.status.value} {one.reason.value}: {one.message}"
            for name, finding in findings.items()
            for one in verdicts_of(finding)
        )
    )


# --- the thread -----------------------------------------------------------------------------------


class Looks:
    """A QueueKeeper whose findings a test sets."""

    def __init__(self) -> None:
        self.finding = FINDING
        self.error: Exception | None = None
        self.count = 0
        self.closed = threading.Event()

    def look(self, task: QueueTask) -> list[QueueFinding]:
        self.count += 1
        if self.error is not None:
            raise self.error
        return [self.finding]

    def close(self) -> None:
        self.closed.set()


class Watched:
    """A watch with its reports; it looks as soon as it may."""

    def __init__(self, *, offered: bool = True) -> None:
        self.looks = Looks()
        self.reports: list[QueueReport] = []
        self.measured: list[list[QueueFinding]] = []
        self.may_write = True
        self.now = 0.0
        opener: Any = (lambda: self.looks) if offered else None
        self.watch = QueueWatch(
            "streaming/orders",
            QueueDependencies(
                opener,
                self.reports.extend,
                lambda: self.now,
                lambda: self.may_write,
                measured=lambda found: self.measured.append(list(found)),
                every_seconds=0.01,
            ),
        )

    def task(self, *raws: dict[str, Any]) -> QueueTask:
        document = policy()
        document["metadata"]["uid"] = "policy"
        spec = parse_policy(document, strict=True).spec
        return QueueTask(policy_from(document, spec), spec, raws)

    def looked(self) -> None:
        """Return when one more look has begun and ended."""
        enough = self.looks.count + 2
        wait_until(lambda: self.looks.count >= enough, "two looks", timeout_seconds=10)


def test_queues_are_looked_after_until_there_are_none() -> None:
    watched = Watched()
    watched.watch.want(watched.task(raw_queue()))
    wait_until(lambda: watched.reports, "a report", timeout_seconds=10)
    watched.watch.want(watched.task())
    assert watched.looks.closed.wait(10)


def test_every_look_is_measured_until_this_replica_looks_no_more() -> None:
    watched = Watched()
    watched.watch.want(watched.task(raw_queue()))
    watched.looked()
    assert watched.measured[-1] == [FINDING]
    watched.may_write = False
    wait_until(lambda: watched.measured[-1] == [], "the end of its figures", timeout_seconds=10)
    watched.may_write = True
    wait_until(lambda: watched.measured[-1] == [FINDING], "figures again", timeout_seconds=10)
    watched.watch.close()
    assert watched.looks.closed.wait(10)
    assert watched.measured[-1] == []


def test_numbers_alone_are_reported_now_and_then_and_news_at_once() -> None:
    watched = Watched()
    watched.watch.want(watched.task(raw_queue()))
    watched.looked()
    watched.looks.finding = replace(FINDING, per_second={5: 9.0})
    watched.looked()
    assert len(watched.reports) == 1
    watched.now = REFRESH_SECONDS
    wait_until(lambda: len(watched.reports) == 2, "new numbers", timeout_seconds=10)
    watched.looks.finding = replace(FINDING, dead=4)
    wait_until(lambda: len(watched.reports) == 3, "news", timeout_seconds=10)
    watched.watch.close()


def test_without_the_lease_nothing_is_looked_at_or_reported() -> None:
    watched = Watched()
    watched.may_write = False
    watched.watch.want(watched.task(raw_queue()))
    watched.watch.close()
    assert (watched.looks.count, watched.reports) == (0, [])
    watched = Watched()
    watched.looks.error = LeaseLost()
    watched.watch.want(watched.task(raw_queue()))
    watched.looked()
    watched.watch.close()
    assert watched.reports == []


def test_a_bug_is_reported_and_the_thread_goes_on() -> None:
    watched = Watched()
    watched.looks.error = ZeroDivisionError("oh")
    watched.watch.want(watched.task(raw_queue()))
    wait_until(lambda: watched.reports, "a report", timeout_seconds=10)
    assert watched.reports[0][2][0].reason is Reason.INTERNAL_ERROR
    watched.looks.error = None
    wait_until(lambda: len(watched.reports) == 2, "the next look", timeout_seconds=10)
    watched.watch.close()


def test_an_operator_that_serves_no_queues_starts_no_thread() -> None:
    watched = Watched(offered=False)
    watched.watch.want(watched.task(raw_queue()))
    watched.watch.close()
    assert watched.looks.count == 0
