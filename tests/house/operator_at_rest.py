"""Resident memory of `tidegate run` with no policy: the real process, against a Kubernetes API that
has no object at all.

The API is the smallest one that kopf and our client are content with: discovery, empty lists, and
watches that stay silent. Run as `python -m tests.house.operator_at_rest`; it prints a line of JSON.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import yaml

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 60.0
_SETTLE_SECONDS = 10.0


def definitions() -> list[dict[str, object]]:
    """The custom resource definitions of the repository."""
    found = [
        document
        for path in sorted((ROOT / "crds").glob("*.yaml"))
        for document in yaml.load_all(path.read_text(), yaml.CSafeLoader)
    ]
    return [
        document
        for document in found
        if document and document.get("kind") == "CustomResourceDefinition"
    ]


class EmptyKubernetes(BaseHTTPRequestHandler):
    """Serves the kinds of crds/, of which there is no object; anything else is not found."""

    protocol_version = "HTTP/1.1"
    specs: ClassVar[list[Any]] = [document["spec"] for document in definitions()]

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if "watch" in parse_qs(address.query):
            self._stay_silent()
        else:
            self._answer(self._document(address.path))

    def _document(self, path: str) -> dict[str, object] | None:
        groups = {spec["group"]: spec["versions"][0]["name"] for spec in self.specs}
        if path == "/version":
            return {"major": "1", "minor": "34"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            versions = {
                name: {"groupVersion": f"{name}/{version}", "version": version}
                for name, version in groups.items()
            }
            return {
                "kind": "APIGroupList",
                "groups": [
                    {"name": name, "versions": [one], "preferredVersion": one}
                    for name, one in versions.items()
                ],
            }
        for spec in self.specs:
            place = f"/apis/{spec['group']}/{spec['versions'][0]['name']}"
            if path == place:
                return {
                    "kind": "APIResourceList",
                    "groupVersion": place.removeprefix("/apis/"),
                    "resources": self._resources(spec["group"]),
                }
            if path.startswith(f"{place}/") and path.endswith(f"/{spec['names']['plural']}"):
                return {
                    "kind": f"{spec['names']['kind']}List",
                    "metadata": {"resourceVersion": "1"},
                    "items": [],
                }
        return (
            {"kind": "APIResourceList", "groupVersion": "v1", "resources": []}
            if path == "/api/v1"
            else None
        )

    def _resources(self, group: str) -> list[dict[str, object]]:
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        return [
            {
                "name": spec["names"]["plural"],
                "singularName": spec["names"]["singular"],
                "kind": spec["names"]["kind"],
                "namespaced": True,
                "verbs": verbs,
            }
            for spec in self.specs
            if spec["group"] == group
        ]

    def _answer(self, document: dict[str, object] | None) -> None:
        body = json.dumps(
            document or {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        ).encode()
        self.send_response(404 if document is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stay_silent(self) -> None:
        """The headers of an answer without an end; the connection is the client's to close."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self.rfile.read(1)

    def log_message(self, format: str, *args: object) -> None:
        """Silence: standard output is the measurement's."""


@contextmanager
def empty_kubernetes(folder: Path) -> Iterator[Path]:
    """The API on a free port; gives a kubeconfig for it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), EmptyKubernetes)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "empty",
                "contexts": [{"name": "empty", "context": {"cluster": "empty", "user": "empty"}}],
                "clusters": [
                    {
                        "name": "empty",
                        "cluster": {"server": f"http://127.0.0.1:{server.server_port}"},
                    }
                ],
                "users": [{"name": "empty", "user": {"token": "none"}}],
            }
        )
    )
    try:
        yield kubeconfig
    finally:
        server.shutdown()
        server.server_close()


def resident_megabytes(pid: int) -> float:
    """Of one process, as the kernel counts it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return (
        int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
        * 1024
        / 1e6
    )


def measured(settle_seconds: float = _SETTLE_SECONDS) -> float:
    """Start the operator, wait until it is alive and at rest, and look. Raises RuntimeError with
    its log when it does not start.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-at-rest-") as folder,
        empty_kubernetes(Path(folder)) as kubeconfig,
    ):
        log = Path(folder) / "operator.log"
        argv = [
            sys.executable,
            "-m",
            "tidegate",
            "run",
            "--kubeconfig",
            str(kubeconfig),
            "--all-namespaces",
            "--lease-namespace",
            "default",
            "--listen-address",
            "127.0.0.1",
        ]
        with (
            log.open("wb") as stream,
            subprocess.Popen(
                [*argv, "--liveness-port", "0", "--metrics-port", "0"],
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            ) as operator,
        ):
            try:
                _wait_until_alive(operator, log)
                time.sleep(settle_seconds)
                if operator.poll() is not None:
                    raise RuntimeError(f"the operator ended by itself:\n{log.read_text()[-2000:]}")
                return resident_megabytes(operator.pid)
            finally:
                operator.terminate()


def _wait_until_alive(operator: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and operator.poll() is None:
        for line in log.read_text().splitlines():
            endpoint = json.loads(line).get("endpoint") if line.startswith("{") else None
            if endpoint and endpoint.endswith("/healthz") and _answers(endpoint):
                return
        time.sleep(0.2)
    raise RuntimeError(
        f"the operator was not alive after {_START_SECONDS:.0f} s:\n{log.read_text()[-2000:]}"
    )


def _answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(endpoint, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    print(json.dumps({"resident_megabytes": round(measured(), 1)}))
