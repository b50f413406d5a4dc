"""One request to the API server: a time limit, few repeats for reads and none for writes, JSON back, failures as tidegate.errors.

It does not know what is asked for. Answers are read as raw JSON and not through the client's models, which drop fields they do not know
and cost ten times the work.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from controller_logic.reasons import Reason
from tidegate import __version__
from tidegate.errors import Unauthorized
from tidegate.kube.api import JsonObject
from tidegate.kube.failures import failure_of, retry_after_seconds

_CONNECT_TIMEOUT_SECONDS = 5.0
_PAUSES_SECONDS = (0.2, 0.8)  # before the second and the third attempt of a read
_LONGEST_PAUSE_SECONDS = 5.0
_RETRIED_STATUSES = (429, 500, 502, 503, 504)

Call = Callable[..., Any]


def connect(kubeconfig: Path | None = None, context: str | None = None) -> client.ApiClient:
    """A client for the cluster this process runs in or, outside of one or with `kubeconfig`, for the one a kubeconfig names.

    It connects with the first request. Raises Unauthorized when there is no usable configuration.
    """
    settings = client.Configuration()
    try:
        if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=settings)
        else:
            config.load_kube_config(None if kubeconfig is None else str(kubeconfig), context, client_configuration=settings)
    except (ConfigException, OSError) as error:
        where = "" if kubeconfig is None else f" from {kubeconfig}"
        raise Unauthorized(
            f"Tidegate does not know how to reach Kubernetes{where}: {str(error).rstrip('.')}. "
            "Give --kubeconfig FILE, or run it in a Pod with a ServiceAccount."
        ) from error
    # The library would repeat some requests by itself, a replaced Lease among them; what is safe to repeat is decided here.
    settings.retries = urllib3.Retry(total=False)
    api_client = client.ApiClient(settings)
    # the server's audit log shows it, and managedFields name as the manager what stands before the slash
    api_client.user_agent = f"tidegate/{__version__}"
    return api_client


class Transport:
    """Carries out single calls of the official client. `pause` waits between attempts; a test hands in its own."""

    def __init__(self, *, request_timeout_seconds: float = 10.0, pause: Callable[[float], None] = time.sleep) -> None:
        self._timeouts = (_CONNECT_TIMEOUT_SECONDS, request_timeout_seconds)
        self._pause = pause

    def read(self, call: Call, *args: str, what: str, reason: Reason, **parameters: Any) -> JsonObject:
        """The answer to a call that changes nothing; tried up to three times when the server is away or busy."""
        for pause_seconds in (*_PAUSES_SECONDS, None):
            try:
                return self._once(call, *args, **parameters)
            except (ApiException, HTTPError) as error:
                if pause_seconds is None or not _is_worth_repeating(error):
                    raise failure_of(error, what=what, reason=reason, is_write=False) from error
                asked_seconds = retry_after_seconds(error) if isinstance(error, ApiException) else 0.0
            self._pause(min(max(pause_seconds, asked_seconds), _LONGEST_PAUSE_SECONDS))
        raise AssertionError("the last attempt either returns or raises")

    def write(self, call: Call, *args: str, what: str, reason: Reason, **parameters: Any) -> JsonObject:
        """The answer to a call that changes something; made once, whatever happens."""
        try:
            return self._once(call, *args, **parameters)
        except (ApiException, HTTPError) as error:
            raise failure_of(error, what=what, reason=reason, is_write=True) from error

    def _once(self, call: Call, *args: str, **parameters: Any) -> JsonObject:
        response = call(*args, **parameters, _preload_content=False, _request_timeout=self._timeouts)
        try:
            answer: JsonObject = json.loads(response.data)
            return answer
        finally:
            response.release_conn()


def _is_worth_repeating(error: ApiException | HTTPError) -> bool:
    return isinstance(error, HTTPError) or error.status in _RETRIED_STATUSES
