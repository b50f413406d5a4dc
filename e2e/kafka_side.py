"""What Kafka itself has: quotas in its ZooKeeper and in its brokers, logins, and whether anything
of ours is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import unquote

from kazoo.client import KazooClient

from lab.errors import LabError
from lab.kafka import KafkaLab, QuotaChange
from lab.process import wait_until

_FETCH, _PRODUCE = "consumer_byte_rate", "producer_byte_rate"
_KINDS = {_FETCH: "FETCH", _PRODUCE: "PRODUCE"}


class KafkaSide:
    """Reads only. `zookeeper` is started."""

    def __init__(self, kafka: KafkaLab, zookeeper: KazooClient) -> None:
        self._kafka = kafka
        self._zookeeper = zookeeper

    def fetch_quota(self, user: str) -> int | None:
        """The user's own fetch quota in ZooKeeper; None where there is none."""
        rate = self._config(user).get(_FETCH)
        return None if rate is None else int(rate)

    def wait_for_fetch_quota(
        self, user: str, rate: int | None, *, timeout_seconds: float = 60.0
    ) -> None:
        """Return once ZooKeeper has exactly this quota and every running broker says that it
        applies it.
        """
        try:
            wait_until(
                lambda: self.fetch_quota(user) == rate,
                f"fetch quota {rate} of {user}",
                timeout_seconds=timeout_seconds,
                poll_seconds=0.2,
            )
        except LabError as late:
            raise LabError(f"{late} It is {self.fetch_quota(user)} now.") from late
        self._kafka.wait_for_quota_applied(
            QuotaChange("FETCH", user, None, rate), timeout_seconds=timeout_seconds
        )

    def login_bytes(self, user: str) -> Mapping[str, str]:
        """What belongs to the user's logins, which only Kafka's own tools may touch."""
        return {key: value for key, value in self._config(user).items() if key.startswith("SCRAM")}

    def claimed_by(self) -> str | None:
        """The policy that manages this cluster's quotas, as NAMESPACE/NAME."""
        return (
            json.loads(self._content("/tidegate/claim"))["policy_key"]
            if self._exists("/tidegate/claim")
            else None
        )

    def ledger(self) -> frozenset[str]:
        """The paths of every record of ours, at any depth; empty when everything was restored."""
        return frozenset(self._below("/tidegate"))

    def fetch_quotas_in_ledger(self) -> Mapping[str, int]:
        """User -> the fetch quota that its ledger record says we wrote."""
        records = {
            path: json.loads(self._content(path))["entries"]
            for path in self._below("/tidegate/ledger")
        }
        # a record's name is the whole path of its entity, encoded
        return {
            unquote(path).rsplit("/", 1)[1]: int(entries[_FETCH]["written"])
            for path, entries in records.items()
            if _FETCH in entries
        }

    def everything(self) -> Mapping[str, bytes]:
        """Every user's and client's config and our own records, as bytes; not the empty node that
        holds our records.
        """
        paths = [
            path
            for root in ("/config/users", "/config/clients", "/tidegate")
            for path in self._below(root)
        ]
        return {path: content for path in paths if (content := self._content(path))}

    def _config(self, user: str) -> dict[str, str]:
        path = f"/config/users/{user}"
        return dict(json.loads(self._content(path)).get("config", {})) if self._exists(path) else {}

    # Scenarios kill ZooKeeper, for longer than this client's session lasts too: every question is
    # asked until it is answered.
    def _exists(self, path: str) -> bool:
        return self._zookeeper.retry(self._zookeeper.exists, path) is not None

    def _content(self, path: str) -> bytes:
        content: bytes | None = self._zookeeper.retry(self._zookeeper.get, path)[0]
        return content or b""

    def _below(self, path: str) -> list[str]:
        children = (
            self._zookeeper.retry(self._zookeeper.get_children, path) if self._exists(path) else []
        )
        return [
            found
            for child in sorted(children)
            for found in (f"{path}/{child}", *self._below(f"{path}/{child}"))
        ]
