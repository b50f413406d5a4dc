"""Carries the Kubernetes Events about our resources to a board, as a user would see them with `kubectl get events`.

It polls, because a demo can afford it and a watch would need its own reconnecting.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import urllib3
from kubernetes import client, config

from demo.words import MarkKind

_POLL_SECONDS = 0.5
_TIMEOUT_SECONDS = 5


class KubernetesEvents:
    """A context manager; while it is open, every new Event of the namespace goes to `note`, those that were there before do not."""

    def __init__(self, kubeconfig: Path, note: Callable[[float, MarkKind, str], None], *, namespace: str) -> None:
        self._api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
        self._note = note
        self._namespace = namespace
        self._seen: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubernetes-events", daemon=True)

    def __enter__(self) -> Self:
        self._seen.update(event.metadata.uid for event in self._listed())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_TIMEOUT_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            for event in self._listed():
                self._show(event)

    def _listed(self) -> list[Any]:
        try:
            return list(self._api.list_namespaced_event(self._namespace, _request_timeout=_TIMEOUT_SECONDS).items)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
            return []  # the events are only shown; the next poll brings what this one missed

    def _show(self, event: Any) -> None:
        if event.metadata.uid in self._seen:
            return
        self._seen.add(event.metadata.uid)
        about = f"{event.involved_object.kind}/{event.involved_object.name}"
        at = event.metadata.creation_timestamp.timestamp()
        self._note(at, MarkKind.EVENT, f"{event.reason} ({about}): {event.message}")
