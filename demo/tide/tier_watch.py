"""What the policy's status says of each level over time, as a user would see it with `kubectl get bbp -o yaml`. It polls, once a second."""

import threading
import time
from pathlib import Path
from typing import Any, Self

import urllib3
from kubernetes import client, config

from demo.declared import NAMESPACE, POLICY
from demo.episode import TierStep
from demo.tide.board import TideBoard
from demo.words import MarkKind

_POLL_SECONDS = 1.0
_TIMEOUT_SECONDS = 5


class TierWatch:
    """A context manager; while it is open, every change of a level's state is kept and shown."""

    def __init__(self, kubeconfig: Path, board: TideBoard) -> None:
        self._api = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))
        self._board = board
        self._steps: list[TierStep] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tier-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_TIMEOUT_SECONDS)

    def steps(self) -> tuple[TierStep, ...]:
        """Every change so far, in the order of time."""
        return tuple(self._steps)

    def _run(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            for tier in self._told():
                self._take(TierStep(time.time(), str(tier["level"]), str(tier["state"]), str(tier.get("because") or "")))

    def _told(self) -> list[dict[str, Any]]:
        try:
            policy: Any = self._api.get_namespaced_custom_object(
                "tidegate.io", "v1alpha1", NAMESPACE, "brokerbandwidthpolicies", POLICY, _request_timeout=_TIMEOUT_SECONDS
            )
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
            return []  # asked again in a second
        return list((policy.get("status") or {}).get("tiers") or ())

    def _take(self, told: TierStep) -> None:
        before = next((step for step in reversed(self._steps) if step.level == told.level), None)
        if before is not None and before.state == told.state:
            return
        self._steps.append(told)
        self._board.show_state(told.level, told.state)
        if before is not None:
            because = f": {told.because}" if told.because else ""
            self._board.note(told.at_seconds, MarkKind.STATE, f"{told.level} is {told.state}{because}")
