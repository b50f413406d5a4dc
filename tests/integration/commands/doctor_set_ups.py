"""`tidegate doctor` on a sound set-up and on broken ones, for whatever keeps a cluster's quotas: each
test module takes `DoctorOnSetUps` with a `setup` of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.kafka import BrokersLab
from lab.kubernetes.api import KubeApi, service_account_kubeconfig
from lab.packages import clock_behind
from lab.process import patience, wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget

NOWHERE = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Report:
    """The findings of one run, and how it ended."""

    code: int
    findings: list[dict[str, str]]
    err: str = ""

    def problems(self) -> set[tuple[str, str]]:
        return {(one["check"], one["reason"]) for one in self.findings if one["state"] == "problem"}

    def states(self, check: str) -> set[str]:
        return {one["state"] for one in self.findings if one["check"] == check}

    def of(self, check: str, state: str = "problem") -> list[dict[str, str]]:
        return [one for one in self.findings if (one["check"], one["state"]) == (check, state)]


@dataclass
class Setup:
    """A policy with one tier, on the lab's parts. `quota_store` is what spec.kafka says of it."""

    kafka: BrokersLab
    quota_store: Mapping[str, Any]
    prometheus: PrometheusLab
    api: KubeApi
    namespace: str
    user: str
    topic: str
    kubeconfig: Path = field(init=False)

    def __post_init__(self) -> None:
        self.kubeconfig = self.api.kubeconfig

    def objects(
        self,
        *,
        kafka: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        spec = {
            "mode": "Enforce",
            "kafka": {
                "bootstrapServers": self.kafka.bootstrap_servers,
                **self.quota_store,
                **(kafka or {}),
            },
            "metrics": {
                "prometheus": {"url": self.prometheus.url},
                "preset": "JmxExporter",
                "scrapeIntervalSeconds": 1,
                "staleAfterSeconds": 10,
                **(metrics or {}),
            },
            "brokers": {"egress": {"limit": "100M"}, "ingress": {"limit": "100M"}},
        }
        member = {
            "name": "shop",
            "user": self.user,
            "topics": [self.topic],
            "contract": {"perPartition": {"fetch": "10M", "produce": "10M"}},
        }
        tier = {"policyRef": {"name": "orders"}, "level": "L0", "members": [member]}
        return [
            self._object("BrokerBandwidthPolicy", "orders", spec),
            self._object("BusinessTier", "core", tier),
        ]

    def _object(self, kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }

    def apply(self, **changes: Mapping[str, Any]) -> None:
        items = self.objects(**changes)
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        self.api.kubectl("apply", "-f", "-", input=json.dumps(listed))

    def apply_password(self, password: str) -> None:
        """The Secret `login` with this password."""
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "login",
                "namespace": self.namespace,
                "labels": {"tidegate.io/credentials": "true"},
            },
            "stringData": {"password": password},
        }
        self.api.kubectl("apply", "-f", "-", input=json.dumps(secret))

    def versions(self) -> list[str]:
        """The versions of every object that the operator may write."""
        kinds = "bbp,bt,leases,events"
        listed = json.loads(self.api.kubectl("get", kinds, "-n", self.namespace, "-o", "json"))
        return [one["metadata"]["resourceVersion"] for one in listed["items"]]

    def doctor(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Report:
        return doctor(
            "--kubeconfig",
            str(self.kubeconfig),
            "-n",
            self.namespace,
            *arguments,
            environment=environment,
        )


def doctor(*arguments: str, environment: Mapping[str, str] | None = None) -> Report:
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", "doctor", "-o", "json", *arguments],
        capture_output=True,
        text=True,
        timeout=patience(90),
        env={**os.environ, **(environment or {})},
    )
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)["findings"]
    for one in findings:
        if one["state"] in ("problem", "warning"):
            assert one["soWhat"], one
            assert one["toDo"], one
    return Report(done.returncode, findings, done.stderr)


def scraped(kafka: BrokersLab, *jobs: Mapping[str, Any]) -> PrometheusLab:
    """A Prometheus over the brokers' exporters, once for each job with its own relabelling."""
    configs = [
        {
            "static_configs": [
                {"targets": [address], "labels": {"broker": str(broker)}}
                for broker, address in kafka.jmx_targets.items()
            ],
            **job,
        }
        for job in jobs
    ]
    targets = [
        ScrapeTarget(str(job["job_name"]), address)
        for job in jobs
        for address in kafka.jmx_targets.values()
    ]
    interval = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    return PrometheusLab(targets, configuration={"global": interval, "scrape_configs": configs})


def wait_for_scrapes(prometheus: PrometheusLab) -> None:
    """Return when every target was scraped often enough for a rate."""
    wait_until(
        lambda: prometheus.query("min(count_over_time(up[1m])) >= 4"),
        "four scrapes of every target",
        timeout_seconds=15,
        poll_seconds=0.2,
    )


class DoctorOnSetUps:
    """Each broken set-up has findings that name the cause and the cure, and no others."""

    def sound(self, setup: Setup) -> Report:
        """What doctor says where nothing is wrong, and changes nothing."""
        setup.apply()
        before = setup.versions()
        report = setup.doctor()
        assert (report.problems(), report.code) == (set(), 0)
        for check in ("kubernetes", "crds", "rights", "kafka", "plugin", "window"):
            assert "ok" in report.states(check), check
        for check in ("prometheus", "clocks", "series", "readings"):
            assert "ok" in report.states(check), check
        assert len(report.of("series", "ok")) == 6
        assert setup.versions() == before
        return report

    def test_an_exporter_without_the_rules_is_named_as_the_cause(self, setup: Setup) -> None:
        drop = {"source_labels": ["__name__"], "regex": "kafka_quota_.*", "action": "drop"}
        with scraped(
            setup.kafka, {"job_name": "kafka", "metric_relabel_configs": [drop]}
        ) as prometheus:
            setup.apply(metrics={"prometheus": {"url": prometheus.url}})
            wait_for_scrapes(prometheus)
            report = setup.doctor()
        assert report.problems() == {("series", "ClientsNotMetered")}
        fetch, produce = report.of("series")
        assert "are others, such as kafka_broker_" in fetch["what"]
        assert "examples/metrics/jmx-exporter-rules.yaml" in produce["toDo"]
        assert "spec.metrics.queries.userProduce" in produce["toDo"]

    def test_a_wrong_label_is_named_with_the_one_that_has_the_ids(self, setup: Setup) -> None:
        setup.apply(metrics={"brokerIdentity": {"label": "node"}})
        report = setup.doctor()
        assert ("identity", "MetricsAmbiguous") in report.problems()
        one = report.of("identity")[0]
        assert "its label 'node'" in one["what"]
        assert "label: broker" in one["toDo"]

    def test_two_clusters_in_one_prometheus_are_seen_and_matchers_are_the_cure(
        self, setup: Setup
    ) -> None:
        def job(cluster: str) -> dict[str, Any]:
            label = {"target_label": "cluster", "replacement": cluster}
            return {"job_name": f"kafka-{cluster}", "relabel_configs": [label]}

        with scraped(setup.kafka, job("a"), job("b")) as prometheus:
            mixed = {"prometheus": {"url": prometheus.url}}
            setup.apply(metrics=mixed)
            wait_for_scrapes(prometheus)
            report = setup.doctor()
            assert ("clusters", "MetricsAmbiguous") in report.problems()
            assert all("metrics.matchers" in one["toDo"] for one in report.of("clusters"))
            assert "cluster 'a' and 'b'" in report.of("clusters")[0]["what"]
            setup.apply(metrics={**mixed, "matchers": {"cluster": "a"}})
            assert setup.doctor().problems() == set()
            setup.apply(metrics={**mixed, "matchers": {"cluster": "c"}})
            wrong = setup.doctor()
        assert ("series", "MetricsMissing") in wrong.problems()
        assert "metrics.matchers (cluster=c)" in wrong.of("series")[0]["what"]

    def test_missing_rights_are_listed_for_who_lacks_them(self, setup: Setup) -> None:
        setup.apply()
        reads = {
            "apiGroups": ["tidegate.io"],
            "resources": ["brokerbandwidthpolicies", "businesstiers", "quotaoverrides"],
            "verbs": ["get", "list"],
        }
        setup.kubeconfig = service_account_kubeconfig(
            setup.api, "reader", namespace=setup.namespace, rules=[reads]
        )
        report = setup.doctor()
        assert report.problems() == {("rights", "NotAuthorized")}
        (one,) = report.of("rights")
        assert f"system:serviceaccount:{setup.namespace}:reader may not" in one["what"]
        assert "patch brokerbandwidthpolicies/status" in one["what"]
        assert "create leases" in one["what"]
        assert "list businesstiers" not in one["what"]
        assert "examples/rights/operator.yaml" in one["toDo"]
        # the same as an administrator who asks for that account
        setup.kubeconfig = setup.api.kubeconfig
        asked = setup.doctor("--as", f"system:serviceaccount:{setup.namespace}:reader")
        assert asked.of("rights") == report.of("rights")
        stranger = setup.doctor("--as", f"system:serviceaccount:{setup.namespace}:default")
        assert "list businesstiers" in stranger.of("rights")[0]["what"]
        assert stranger.states("policy") == {"unknown"}

    def test_a_clock_that_is_off_is_reported_beside_readings_that_are_old(
        self, setup: Setup
    ) -> None:
        setup.apply()
        report = setup.doctor(environment=clock_behind(10))
        assert ("clocks", "ClocksDiffer") in report.problems()
        (one,) = report.of("clocks")
        assert "behind that of Prometheus" in one["what"]
        assert "NTP" in one["toDo"]

    def test_a_quota_window_other_than_the_brokers_is_reported_with_both(
        self, setup: Setup
    ) -> None:
        setup.apply(kafka={"quotaWindow": {"samples": 5, "sampleSeconds": 2}})
        report = setup.doctor()
        assert report.problems() == {("window", "QuotaWindowDiffers")}
        (one,) = report.of("window")
        assert "11 samples of 1 s" in one["what"]
        assert "5 of 2 s" in one["what"]
        assert "samples: 11, sampleSeconds: 1" in one["toDo"]

    def test_a_wrong_password_is_not_taken_for_a_broker_that_is_away(self, setup: Setup) -> None:
        setup.apply_password("wrong")
        login = {
            "type": "scram-sha-256",
            "username": setup.user,
            "passwordSecret": {"secretName": "login", "password": "password"},
        }
        setup.apply(
            kafka={
                "bootstrapServers": setup.kafka.sasl_bootstrap_servers,
                "authentication": login,
            }
        )
        report = setup.doctor()
        assert report.problems() == {("kafka", "NotAuthorized")}
        (one,) = report.of("kafka")
        assert f"as {setup.user} by scram-sha-256, in plain text" in one["what"]
        assert "refused the login" in one["what"]
        setup.apply(kafka={"bootstrapServers": "127.0.0.1:9"})
        assert setup.doctor().problems() == {("kafka", "BrokersUnreachable")}

    def test_a_prometheus_that_is_away_is_one_finding(self, setup: Setup) -> None:
        setup.apply(metrics={"prometheus": {"url": NOWHERE}})
        report = setup.doctor()
        assert report.problems() == {("prometheus", "PrometheusUnreachable")}
        (one,) = report.of("prometheus")
        assert NOWHERE in one["what"]
        assert "metrics.prometheus.url" in one["toDo"]
        assert report.states("series") == set()
