"""The console on a real API server, with the rights that the chart gives it: what it hears and when,
and what each viewer is shown.
"""

from __future__ import annotations

from typing import Any

import pytest
import requests
from kubernetes import client as kubernetes_client

from lab.kubernetes.api import KubeApi, service_account_kubeconfig
from lab.network import free_port
from lab.process import patience, wait_until
from tests.integration.console.cluster import Live, bearer, create, names, token_of
from tests.integration.console.conftest import Shown
from tests.unit.resources.documents import policy, queue, tier
from tidegate.console.access import Access, Refused
from tidegate.console.now_page import now_page
from tidegate.console.parts import page_html
from tidegate.console.server import Console
from tidegate.console.source import LiveSource
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    Event,
    LeaseRecord,
    ObjectRef,
)
from tidegate.kube.client import KubernetesClient, connect
from tidegate.kube.lease import LeaseAddress
from tidegate.kube.login import Login, Right
from tidegate.observe.declared import object_key
from tidegate.view.policy import Objects, PolicyNow

pytestmark = pytest.mark.integration


def seen_by(console: Console, token: str | None) -> Objects:
    """The objects that this viewer may list. Raises Refused."""
    viewers = console.viewers()
    assert viewers is not None
    return console.source.objects().only(viewers.rights(token).may_list)


def test_what_changes_is_heard_within_a_second(
    live: Live, namespace: str, api_client: kubernetes_client.ApiClient
) -> None:
    wait_until(
        lambda: live.source.objects().heard_at_seconds is not None,
        "the first list",
        timeout_seconds=50,
    )
    before = live.source.changes()
    create(api_client, BROKER_BANDWIDTH_POLICIES, namespace, "orders", policy())
    wait_until(lambda: "orders" in names(live.source, namespace), "it", timeout_seconds=5)
    assert live.source.changes() != before
    custom = kubernetes_client.CustomObjectsApi(api_client)
    place = (BROKER_BANDWIDTH_POLICIES.group, BROKER_BANDWIDTH_POLICIES.version, namespace)
    custom.patch_namespaced_custom_object_status(
        *place,
        BROKER_BANDWIDTH_POLICIES.plural,
        "orders",
        {"status": {"clusterId": "seen"}},
        _request_timeout=30,
    )
    wait_until(
        lambda: (
            (names(live.source, namespace)["orders"].get("status") or {}).get("clusterId") == "seen"
        ),
        "its status",
        timeout_seconds=5,
    )
    custom.delete_namespaced_custom_object(
        *place, BROKER_BANDWIDTH_POLICIES.plural, "orders", _request_timeout=30
    )
    wait_until(lambda: "orders" not in names(live.source, namespace), "its end", timeout_seconds=5)
    assert live.source.objects().problem == ""


def test_events_and_the_holder_of_the_lease_are_seen_and_events_by_whom_may_list_them(
    live: Live, namespace: str, api_client: kubernetes_client.ApiClient, crds: KubeApi
) -> None:
    create(api_client, BROKER_BANDWIDTH_POLICIES, namespace, "orders", policy())
    wait_until(lambda: "orders" in names(live.source, namespace), "it", timeout_seconds=50)
    operator = KubernetesClient(api_client, "operator")
    about = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, names(live.source, namespace)["orders"])
    operator.create_event(Event(about, "Warning", "Throttled", "L3 is throttled", "19ab-c0ffee"))
    key = f"{namespace}/orders"
    address = LeaseAddress.of_policy(key, operator_namespace=namespace)
    now = 1_800_000_000.0
    operator.create_lease(
        LeaseRecord(namespace, address.name, "tidegate-7d9f_1_ab", 10, 0, now, now)
    )

    def seen() -> PolicyNow | None:
        return Console(live.source).policy(live.source.objects(), key)

    def is_known() -> bool:
        found = seen()
        return found is not None and bool(found.events) and found.lease is not None

    wait_until(is_known, "the Event and the Lease", timeout_seconds=20)
    found = seen()
    assert found is not None
    (event,) = found.events
    assert (event.type, event.reason, event.note) == ("Warning", "Throttled", "L3 is throttled")
    assert (event.regarding, event.pass_id) == ("BrokerBandwidthPolicy orders", "19ab-c0ffee")
    assert found.lease is not None
    assert found.lease.holder == "tidegate-7d9f_1_ab"
    page = page_html(now_page(found, Console(live.source).history))
    assert "written by" in page
    assert "tidegate-7d9f" in page

    # a user who may list policies, but no Events, is informed of that and shown none
    reading = {
        "apiGroups": ["tidegate.io"],
        "resources": ["brokerbandwidthpolicies"],
        "verbs": ["list"],
    }
    events = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list"]}
    without = token_of(crds, "without", namespace, [reading], namespace)
    with_events = token_of(crds, "with-events", namespace, [reading, events], namespace)
    console = Console(live.source, live.access)
    assert seen_by(console, with_events).events
    told = seen_by(console, without)
    assert told.events == ()
    assert "may not list" in told.events_problem


def test_an_api_server_that_is_away_is_said_and_what_was_known_keeps_its_age() -> None:
    settings = kubernetes_client.Configuration()
    settings.host = f"http://127.0.0.1:{free_port()}"
    settings.retries = False
    api_client = kubernetes_client.ApiClient(settings)
    source = LiveSource(KubernetesClient(api_client, "console"), api_client, (), lambda _: None)
    source.start()
    wait_until(
        lambda: source.objects().problem not in ("", "not read yet"),
        "the problem",
        timeout_seconds=50,
    )
    assert source.objects().heard_at_seconds is None
    source.close()


def test_delay_queues_appear_with_the_right_to_list_them_and_to_viewers_who_have_it(
    crds: KubeApi,
    namespace: str,
    rules: list[dict[str, Any]],
    api_client: kubernetes_client.ApiClient,
) -> None:
    create(api_client, DELAY_QUEUES, namespace, "unpaid", queue())
    kubeconfig = service_account_kubeconfig(crds, "reader", namespace=namespace, rules=rules)
    api = connect(kubeconfig)
    source = LiveSource(KubernetesClient(api, "console"), api, (), lambda _: None, look_seconds=0.5)
    source.start()

    def keys() -> set[str]:
        return {object_key(raw) for raw in source.objects().queues}

    try:
        wait_until(
            lambda: source.objects().heard_at_seconds is not None, "the rest", timeout_seconds=50
        )
        assert source.objects().problem == ""
        assert keys() == set()
        reading = {"apiGroups": ["tidegate.io"], "resources": ["delayqueues"]}
        listing, watching = ({**reading, "verbs": verbs} for verbs in (["list"], ["list", "watch"]))
        service_account_kubeconfig(crds, "reader", namespace=namespace, rules=[*rules, watching])
        wait_until(lambda: f"{namespace}/unpaid" in keys(), "the queue", timeout_seconds=30)
        console = Console(source, Access(connect(kubeconfig)))
        owner = token_of(crds, "owner", namespace, [listing], namespace)
        stranger = token_of(crds, "stranger", namespace, [], namespace)
        assert [object_key(raw) for raw in seen_by(console, owner).queues] == [
            f"{namespace}/unpaid"
        ]
        assert seen_by(console, stranger).queues == ()
    finally:
        source.close()


def test_the_consoles_account_reads_no_secret_and_changes_nothing(
    live: Live, namespace: str
) -> None:
    login = Login(connect(live.kubeconfig))

    def may(verb: str, resource: str, group: str = "tidegate.io") -> bool:
        return login.may(Right(group, resource, verb, namespace))

    assert may("watch", "businesstiers")
    for verb, resource, group in (
        ("get", "secrets", ""),
        ("list", "secrets", ""),
        ("patch", "businesstiers", "tidegate.io"),
        ("update", "brokerbandwidthpolicies", "tidegate.io"),
        ("create", "quotaoverrides", "tidegate.io"),
        ("create", "events", "events.k8s.io"),
    ):
        assert not may(verb, resource, group), (verb, resource)


def test_a_viewer_sees_only_the_kinds_and_namespaces_that_they_may_list(
    live: Live,
    namespace: str,
    other: str,
    crds: KubeApi,
    api_client: kubernetes_client.ApiClient,
    shown: Shown,
) -> None:
    for place in (namespace, other):
        create(api_client, BROKER_BANDWIDTH_POLICIES, place, f"policy-of-{place}", policy())
        create(api_client, BUSINESS_TIERS, place, f"tier-of-{place}", tier())
    reading = {
        "apiGroups": ["tidegate.io"],
        "resources": ["brokerbandwidthpolicies", "businesstiers"],
        "verbs": ["get", "list"],
    }
    tenant = token_of(crds, "tenant", namespace, [reading], namespace)
    owner = token_of(
        crds, "owner", namespace, [reading | {"resources": ["brokerbandwidthpolicies"]}], other
    )
    stranger = token_of(crds, "stranger", namespace, [], namespace)
    wait_until(
        lambda: names(live.source, other).keys() >= {f"tier-of-{other}"}, "both", timeout_seconds=50
    )
    console = Console(live.source, live.access)

    seen = seen_by(console, tenant)
    assert [one["metadata"]["namespace"] for one in seen.policies] == [namespace]
    assert [one["metadata"]["name"] for one in seen.tiers] == [f"tier-of-{namespace}"]
    seen = seen_by(console, owner)
    assert [one["metadata"]["namespace"] for one in seen.policies] == [other]
    assert seen.tiers == ()
    seen = seen_by(console, stranger)
    assert (seen.policies, seen.tiers, seen.overrides) == ((), (), ())
    for token in (None, "", "no-such-token", "x" * 20_000, "\u202e"):
        with pytest.raises(Refused):
            seen_by(console, token)

    # the same through the pages
    shown.console.source, shown.console.access = live.source, live.access
    try:
        bare = requests.get(shown.address, timeout=patience(10), allow_redirects=False)
        assert (bare.status_code, bare.headers["location"]) == (303, "/login")
        wrong = requests.get(shown.address, headers=bearer("no-such-token"), timeout=patience(10))
        assert wrong.status_code == 401
        page = requests.get(shown.address, headers=bearer(tenant), timeout=patience(10))
        assert page.status_code == 200
        assert f"policy-of-{namespace}" in page.text
        assert f"policy-of-{other}" not in page.text
        asked = f"{shown.address}/?policy={other}/policy-of-{other}"
        assert (
            f"{other}" not in requests.get(asked, headers=bearer(tenant), timeout=patience(10)).text
        )
        nothing = requests.get(shown.address, headers=bearer(stranger), timeout=patience(10))
        assert "There is no BrokerBandwidthPolicy here" in nothing.text
        person = requests.Session()
        answer = person.post(f"{shown.address}/login", data={"token": tenant}, timeout=patience(10))
        assert f"policy-of-{namespace}" in answer.text
        cookie = next(iter(person.cookies))
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert tenant not in str(cookie.value)
        refused = person.post(
            f"{shown.address}/login", data={"token": "nonsense"}, timeout=patience(10)
        )
        assert refused.status_code == 401
    finally:
        shown.console.access = None
