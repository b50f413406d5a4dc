"""The client of the API server: failed requests become errors with their outcome and a remedy, and
it sends who it is.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import urllib3
from kubernetes.client import ApiClient, ApiException
from urllib3.exceptions import ConnectTimeoutError, HTTPError, ProtocolError, ReadTimeoutError

from tidegate import __version__, errors
from tidegate.kube.api import BUSINESS_TIERS, JsonObject
from tidegate.kube.client import KubernetesClient, connect, failure_of
from tidegate_logic.reasons import Reason

# --- failed requests ------------------------------------------------------------------------------
# A failed request becomes an error with whether it can have happened, and what to do.


def refused(status: int) -> ApiException:
    return ApiException(
        status=status, reason="why", body='{"kind":"Status","message":"the words of the server"}'
    )


@pytest.mark.parametrize(
    ("status", "on_read", "on_write"),
    [
        (401, errors.Unauthorized, errors.Unauthorized),
        (403, errors.Unauthorized, errors.Unauthorized),
        (404, errors.NotFound, errors.NotFound),
        (409, errors.Conflict, errors.Conflict),
        (410, errors.Incomplete, errors.Incomplete),
        (422, errors.InvalidResource, errors.InvalidResource),
        (429, errors.Unreachable, errors.Unreachable),
        (500, errors.Unreachable, errors.ServerFault),
        (503, errors.Unreachable, errors.ServerFault),
        (504, errors.Unreachable, errors.ServerFault),
        (0, errors.Unreachable, errors.OutcomeUnknown),
    ],
)
def test_a_refusal_names_the_outcome_of_the_request(
    status: int, on_read: type[errors.TidegateError], on_write: type[errors.TidegateError]
) -> None:
    for is_write, kind in ((False, on_read), (True, on_write)):
        failure = failure_of(
            refused(status), what="read Lease a/b", reason=Reason.LIST_INCOMPLETE, is_write=is_write
        )
        assert type(failure) is kind
        assert "read Lease a/b" in failure.message
        assert "the words of the server" in failure.message


def test_a_namespace_in_deletion_is_no_missing_right(
    golden: Callable[[str], None],
) -> None:
    cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
    status = {"message": "the words of the server", "details": {"causes": [cause]}}
    going = ApiException(status=403, reason="Forbidden")
    going.body = json.dumps(status)
    said = [
        failure_of(error, what="post an event", reason=Reason.LIST_INCOMPLETE, is_write=True)
        for error in (going, refused(403))
    ]
    golden("\n".join(error.message for error in said))
    assert "Give the operator's ServiceAccount this right" in said[1].message


@pytest.mark.parametrize(
    "error",
    [
        refused(503),
        refused(429),
        ConnectTimeoutError("timed out"),
        ReadTimeoutError(None, "/", "timed out"),
    ],
)  # type: ignore[arg-type]
def test_a_server_that_is_away_or_at_fault_is_named_as_such_whatever_was_asked(
    error: ApiException | HTTPError,
) -> None:
    assert (
        failure_of(error, what="x", reason=Reason.SECRET_UNREADABLE, is_write=False).reason
        is Reason.KUBERNETES_UNREACHABLE
    )


@pytest.mark.parametrize("status", [404, 410])
def test_an_answer_that_something_is_missing_means_what_was_asked_for(status: int) -> None:
    assert (
        failure_of(
            refused(status), what="x", reason=Reason.SECRET_UNREADABLE, is_write=False
        ).reason
        is Reason.SECRET_UNREADABLE
    )


@pytest.mark.parametrize(
    ("error", "on_write"),
    [
        (ConnectTimeoutError("timed out"), errors.Unreachable),
        (ReadTimeoutError(None, "/", "timed out"), errors.OutcomeUnknown),  # type: ignore[arg-type]
        (ProtocolError("reset"), errors.OutcomeUnknown),
    ],
)
def test_only_a_write_that_never_left_is_known_not_to_have_happened(
    error: HTTPError, on_write: type[errors.TidegateError]
) -> None:
    assert (
        type(failure_of(error, what="x", reason=Reason.LIST_INCOMPLETE, is_write=True)) is on_write
    )
    assert (
        type(failure_of(error, what="x", reason=Reason.LIST_INCOMPLETE, is_write=False))
        is errors.Unreachable
    )


def handshake_failure(inner: ssl.SSLError) -> ApiException:
    """As the library raises it: status 0, and what urllib3 raised around it."""
    try:
        raise urllib3.exceptions.SSLError(inner)
    except urllib3.exceptions.SSLError as error:
        failed = ApiException(status=0, reason=f"SSLError\n{error}")
        failed.__context__ = error
        return failed


def test_an_untrusted_certificate_is_not_an_unknown_outcome() -> None:
    inner = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] (_ssl.c:1000)")
    inner.verify_code, inner.verify_message = 18, "self-signed certificate"
    error = failure_of(
        handshake_failure(inner), what="x", reason=Reason.LIST_INCOMPLETE, is_write=True
    )
    assert type(error) is errors.Unreachable
    assert "no connection by TLS: its certificate is refused: self-signed" in error.message


# --- who it is ------------------------------------------------------------------------------------
# The identity that Tidegate sends to the API server.


def test_the_server_learns_who_asks_because_managed_fields_and_audit_logs_show_it(
    tmp_path: Path,
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {}}
    kubeconfig.write_text(
        json.dumps(
            {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
        )
    )
    assert connect(kubeconfig).user_agent == f"tidegate/{__version__}"


# --- lists ----------------------------------------------------------------------------------------


def _listing(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], *, seconds_a_page: float
) -> KubernetesClient:
    """A client whose server takes its time for each page; `team-b` has two of them."""
    now = [0.0]
    made = KubernetesClient(ApiClient(), "test", monotonic=lambda: now[0])

    def page(_: object, namespace: str | None, *, position: str | None) -> JsonObject:
        asked.append(f"{namespace}{position or ''}")
        now[0] += seconds_a_page
        more = {"continue": "-2"} if asked[-1] == "team-b" else {}
        return {"metadata": {"resourceVersion": str(len(asked)), **more}, "items": [asked[-1]]}

    monkeypatch.setattr(made, "_page", page)
    return made


def test_a_list_of_several_namespaces_has_all_pages_and_the_oldest_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = _listing(monkeypatch, [], seconds_a_page=1.0).list_all(
        BUSINESS_TIERS, ["team-a", "team-b", "team-c"]
    )
    assert listed.items == ("team-a", "team-b", "team-b-2", "team-c")
    assert listed.resource_version == "1"


def test_all_namespaces_of_a_list_have_one_time_limit_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    kubernetes = _listing(monkeypatch, asked, seconds_a_page=25.0)
    with pytest.raises(errors.Incomplete, match="had sent 3 pages"):
        kubernetes.list_all(BUSINESS_TIERS, [f"team-{number}" for number in range(10)])
    assert len(asked) == 3
