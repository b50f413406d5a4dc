"""Which namespaces' tiers a policy lets in (spec.allowedTiers), by the labels of the namespaces.

Namespaces are read only for tiers of another namespace that name a policy with a selector. While
the labels of one are not known, it is not known either whether its tiers are the policy's: then
nothing is changed of what these name.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.errors import NotFound, RetryLater, TidegateError
from tidegate.kube.api import BUSINESS_TIERS, Kubernetes
from tidegate.resources.access import AllowedTiers
from tidegate_logic.reasons import Reason

# a new label is seen within this
LABELS_AGE_SECONDS = 15.0

Labels = Mapping[str, str]
# the labels of a namespace; NotFound when there is none, another TidegateError when that is unknown
NamespaceLabels = Callable[[str], Labels]


def unknown_labels(namespace: str) -> Labels:
    """The labels where Kubernetes is not asked."""
    raise RetryLater(
        Reason.NAMESPACES_UNREAD,
        f"The labels of namespace {namespace} are not known without Kubernetes",
    )


def labels_now(kubernetes: Kubernetes) -> NamespaceLabels:
    """The labels as they are now, for one look; after a failure the others are still asked for."""
    return KnownLabels(kubernetes, time.monotonic, keep_seconds=float("inf"), beside=False)


class KnownLabels:
    """Labels of namespaces, each read again after 15 s. For one caller at a time.

    A pass waits only for labels that are not known at all: else they are read beside it, and those
    read last count for `keep_seconds` while Kubernetes does not answer. `beside` False = every
    reading is waited for.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        monotonic: Callable[[], float],
        *,
        keep_seconds: float,
        beside: bool = True,
    ) -> None:
        self._kubernetes = kubernetes
        self._monotonic = monotonic
        self._keep_seconds = keep_seconds
        self._beside = beside
        # when labels were read, and what came: None = there is no such namespace
        self._known: dict[str, tuple[float, Labels | None]] = {}
        self._failed: dict[str, tuple[float, TidegateError]] = {}
        self._away: tuple[float, TidegateError] | None = None  # Kubernetes did not answer
        self._wanted: deque[str] = deque()
        self._reading: threading.Thread | None = None

    def __call__(self, namespace: str) -> Labels:
        """See NamespaceLabels."""
        if self._age_seconds(namespace) >= LABELS_AGE_SECONDS:
            self._reread(namespace)
        read_at_seconds, labels = self._known.get(namespace, (float("-inf"), None))
        if self._monotonic() - read_at_seconds >= self._keep_seconds:
            failed = self._failed.get(namespace) or self._away
            why = "" if failed is None else f": {failed[1].message}"
            raise RetryLater(
                Reason.NAMESPACES_UNREAD,
                f"The labels of namespace {namespace} could not be read{why}",
            )
        if labels is None:
            raise NotFound(Reason.NAMESPACES_UNREAD, f"Namespace {namespace} does not exist")
        return labels

    def _age_seconds(self, namespace: str) -> float:
        read_at_seconds = self._known.get(namespace, (float("-inf"), None))[0]
        return self._monotonic() - read_at_seconds

    def _reread(self, namespace: str) -> None:
        """Read the labels, or have them read.

        Not soon after a failure of theirs, nor of any where Kubernetes did not answer: that took
        its time.
        """
        for failed in (self._away, self._failed.get(namespace)):
            if failed is not None and self._monotonic() - failed[0] < LABELS_AGE_SECONDS:
                return
        if not self._beside or self._age_seconds(namespace) >= self._keep_seconds:
            self._read(namespace)
            return
        if namespace not in self._wanted:
            self._wanted.append(namespace)
        if self._reading is None or not self._reading.is_alive():
            self._reading = threading.Thread(target=self._read_wanted, name="labels", daemon=True)
            self._reading.start()

    def _read_wanted(self) -> None:
        """Read what passes have asked for; the rest is asked for again when one has no answer."""
        before = self._away
        while self._wanted:
            namespace = self._wanted.popleft()
            if (
                self._age_seconds(namespace) >= LABELS_AGE_SECONDS
            ):  # not read since it was asked for
                self._read(namespace)
            if self._away is not before and self._away is not None:
                self._wanted.clear()

    def _read(self, namespace: str) -> None:
        labels: Labels | None = None
        try:
            labels = self._kubernetes.namespace_labels(namespace)
        except NotFound:
            pass
        except TidegateError as error:
            self._failed[namespace] = (self._monotonic(), error)
            if isinstance(error, RetryLater):
                self._away = self._failed[namespace]
            return
        self._failed.pop(namespace, None)
        self._away = None
        self._known[namespace] = (self._monotonic(), labels)


class TierAdmission:
    """Lets tiers of the policy's own namespace in, and of others as spec.allowedTiers says.

    By tier: `not_let_in` has why not, `unknown` why it is not known. `lets_in` answers for a
    namespace instead of its labels, and raises as they do.
    """

    def __init__(
        self,
        policy_key: str,
        allowed: AllowedTiers,
        labels: NamespaceLabels,
        lets_in: Callable[[str], bool] | None = None,
    ) -> None:
        self.not_let_in: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self._policy_key = policy_key
        self._allowed = allowed
        self._lets_in = lets_in or (lambda namespace: allowed.lets_in(labels(namespace)))
        self._answers: dict[str, bool | str] = {}

    def is_at_home(self, raw: Mapping[str, Any]) -> bool:
        """Whether the object lives in the policy's namespace."""
        return bool(raw["metadata"]["namespace"] == self._policy_key.partition("/")[0])

    def keeps_out(self, raw: Mapping[str, Any]) -> bool:
        """Whether the tier counts as absent; not while it is unknown whether it is the policy's."""
        if self.is_at_home(raw):
            return False
        namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
        answer = self._answer(namespace)
        if isinstance(answer, str):
            self.unknown[f"{namespace}/{name}"] = answer
        elif not answer:
            self.not_let_in[f"{namespace}/{name}"] = (
                f"Policy {self._policy_key} does not admit BusinessTiers from namespace "
                f"{namespace} (spec.allowedTiers); this object has no effect until it does"
            )
        return answer is False

    def _answer(self, namespace: str) -> bool | str:
        """Whether tiers of the namespace are let in, or why that is not known."""
        if self._allowed.selector is None:
            return False
        if namespace not in self._answers:
            try:
                self._answers[namespace] = self._lets_in(namespace)
            except NotFound:
                self._answers[namespace] = False
            except TidegateError as error:
                self._answers[namespace] = (
                    f"{error.message.removesuffix('.')}, so Tidegate cannot tell whether "
                    "spec.allowedTiers admits its BusinessTiers; the quotas that they declare "
                    "stay as they are until it can"
                )
        return self._answers[namespace]


def with_tiers_elsewhere(
    kubernetes: Kubernetes | None,
    policy: Mapping[str, Any],
    tiers: Sequence[Mapping[str, Any]],
    listed: str | None,
) -> tuple[Sequence[Mapping[str, Any]], str]:
    """For a command: tiers of all namespaces where the policy may let them in, and only `listed`
    was listed.

    With why they are not known, "" = they are.
    """
    allowed = (policy.get("spec") or {}).get("allowedTiers") or {}
    if kubernetes is None or not listed or allowed.get("namespaces") != "Selector":
        return tiers, ""
    try:
        return list(kubernetes.list_all(BUSINESS_TIERS)), ""
    except TidegateError as error:
        what = "BusinessTiers of other namespaces, which spec.allowedTiers may admit,"
        return tiers, f"{what} are not known: {error.for_command}"
