"""A real Kubernetes API: etcd, kube-apiserver and kube-controller-manager.

Each is a part of the one binary `kube`. Left to itself it has no node, no scheduler and no Pods:
what it offers is what an operator sees of a cluster (schemas, CEL, RBAC, watches, garbage
collection, namespace deletion), on loopback and without root. `node` gives it a node. Its state
lives in one directory and is deleted at the end.
"""

import http.client
import json
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab.cache import RunDirectory
from lab.errors import say
from lab.kubernetes.tools import kube_binary, run_kubectl
from lab.network import free_port
from lab.process import NICENESS, Opened, Process, output_of, patience, start, wait_until

# Memory for time: with the usual 100 a small API server spends a quarter of its processor time on
# collecting garbage.
_GARBAGE_PERCENT = "400"
_START_TIMEOUT_SECONDS = 60.0
_KEY_TIMEOUT_SECONDS = 20.0
_ADMIN = "admin"
_HOST = "127.0.0.1"
_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "ttl-after-finished-controller",
)


class KubeApi(Opened):
    """A running Kubernetes API for as long as the `with` block lasts.

    Attributes are valid inside the block: `server` (the URL), `kubeconfig` (an administrator's),
    `directory` (state and logs). The first write to a fresh CRD takes about 2 s on this server
    although the CRD is Established, so install CRDs once per session.
    """

    def __init__(self, *, niceness: int = NICENESS) -> None:
        """With the `niceness` 0 it gets the processor before other parts of the lab, as one that
        has a machine of its own.
        """
        self._niceness = niceness
        self._processes: dict[str, Process] = {}
        self._token = secrets.token_hex(16)

    def _open(self, stack: ExitStack) -> None:
        self._binary = kube_binary()
        self.directory = stack.enter_context(RunDirectory()).path
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self._port = free_port(_HOST)
        self.server = f"https://{_HOST}:{self._port}"
        stack.callback(self._kill)
        self._start()

    def kubectl(self, *args: str, input: str | None = None, timeout_seconds: float = 60.0) -> str:
        """What kubectl, run as the administrator, writes to stdout.

        `input` goes to its stdin (`-f -`). Raises `CommandFailed` when it ends with another code
        than 0, `LabError` when it has not ended in time.
        """
        return run_kubectl(
            self._binary, self.kubeconfig, args, input=input, timeout_seconds=timeout_seconds
        )

    def restart_apiserver(self) -> None:
        """Kill the API server and start it again with all that etcd holds; return once ready.

        Watches break, tokens stay good.
        """
        self._processes["kube-apiserver"].kill()
        self._start_apiserver()

    def install_crds(self, *paths: Path) -> None:
        """Apply the CRDs in these files or directories and wait until they are served.

        Unknown fields are refused.
        """
        files = [argument for path in paths for argument in ("-f", str(path))]
        self.kubectl("apply", "--server-side", "--validate=strict", *files)
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", *files)

    def kubeconfig_for(self, *, token: str, path: Path) -> Path:
        """Write a kubeconfig with the bearer `token` to `path`; returns `path`.

        Only its owner can read the file.
        """
        cluster = {
            "server": self.server,
            "certificate-authority": str(self.directory / "pki" / "apiserver.crt"),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": "lab", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "current-context": "lab",
        }
        _write_private(path, json.dumps(content, indent=1))
        return path

    def _kill(self) -> None:
        # Nothing here is worth a clean shutdown: the state is deleted, and an API server with open
        # watches takes its time.
        while self._processes:
            self._processes.popitem()[1].kill()

    def _start(self) -> None:
        started = time.monotonic()
        self._write_credentials()
        self._etcd_url = self._start_etcd()
        self._start_apiserver()
        self._wait_until_ready(
            self._start_controller_manager(), "the controller manager", path="/healthz"
        )
        say("kube-api", f"ready at {self.server} after {time.monotonic() - started:.1f} s")

    def _write_credentials(self) -> None:
        key = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]
        signing = output_of(key, timeout_seconds=_KEY_TIMEOUT_SECONDS)
        _write_private(self.directory / "service-account.key", signing)
        line = f'{self._token},{_ADMIN},{_ADMIN},"system:masters"\n'
        _write_private(self.directory / "tokens.csv", line)
        self.kubeconfig_for(token=self._token, path=self.kubeconfig)

    def _run(self, part: str, *flags: str) -> None:
        log_path = self.directory / "log" / f"{part}.log"
        argv = [str(self._binary), part, *flags]
        self._processes[part] = start(
            part,
            argv,
            log_path=log_path,
            environment={"GOGC": _GARBAGE_PERCENT},
            niceness=self._niceness,
        )

    def _start_etcd(self) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._run(
            "etcd",
            "--name=lab",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=lab={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        return client

    def _start_apiserver(self) -> None:
        self._run(
            "kube-apiserver",
            f"--etcd-servers={self._etcd_url}",
            f"--bind-address={_HOST}",
            f"--advertise-address={_HOST}",
            f"--secure-port={self._port}",
            f"--cert-dir={self.directory / 'pki'}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.directory / 'service-account.key'}",
            f"--service-account-signing-key-file={self.directory / 'service-account.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--profiling=false",
            # it refuses to advertise a loopback address in the Service `kubernetes`
            "--endpoint-reconciler-type=none",
        )
        self._wait_until_ready(self._port, "the Kubernetes API", path="/readyz")

    def _start_controller_manager(self) -> int:
        port = free_port()
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.directory / 'controller-manager-pki'}",
            "--leader-elect=false",
            f"--service-account-private-key-file={self.directory / 'service-account.key'}",
            f"--root-ca-file={self.directory / 'pki' / 'apiserver.crt'}",
            f"--controllers={','.join(_CONTROLLERS)}",
        )
        return port

    def _wait_until_ready(self, port: int, what: str, *, path: str) -> None:
        wait_until(
            lambda: _answers(port, path),
            what,
            timeout_seconds=_START_TIMEOUT_SECONDS,
            processes=list(self._processes.values()),
        )


def _answers(port: int, path: str) -> bool:
    # Each part has signed its own certificate by now or not yet; whether it is ready is all that is
    # asked, on this machine.
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(_HOST, port, timeout=patience(5), context=trusting)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _write_private(path: Path, content: str) -> None:
    path.touch(mode=0o600)
    path.write_text(content)


# ServiceAccounts of the lab's Kubernetes API with exactly the rights a test names, as kubeconfig
# files.
#
# With an administrator's kubeconfig every missing RBAC rule goes unnoticed; with one of these it is
# a 403. The rights are never wider than what is given.


Rule = Mapping[str, Sequence[str]]
"""One RBAC rule in Kubernetes' terms: `apiGroups`, `resources`, `verbs`, `resourceNames`."""

_RBAC = "rbac.authorization.k8s.io"


def service_account_kubeconfig(
    kube_api: KubeApi,
    name: str,
    *,
    namespace: str,
    rules: Sequence[Rule],
    granted_in: Sequence[str] = (),
) -> Path:
    """A kubeconfig for the ServiceAccount `name`, which is made and bound to `rules` here.

    The rules hold in the namespaces of `granted_in`, or in the whole cluster when there are none.
    The token lasts an hour. The namespaces have to exist. Raises
    `lab.process.CommandFailed` when the server refuses a rule.
    """
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    objects = [_object("v1", "ServiceAccount", name, namespace)]
    role_name = f"{namespace}-{name}"
    for place in granted_in or [""]:
        kind = "Role" if place else "ClusterRole"
        role = {"apiGroup": _RBAC, "kind": kind, "name": role_name}
        binding = {"roleRef": role, "subjects": [subject]}
        objects += [
            _object(f"{_RBAC}/v1", kind, role_name, place, rules=list(rules)),
            _object(f"{_RBAC}/v1", f"{kind}Binding", role_name, place, **binding),
        ]
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    kube_api.kubectl("apply", "-f", "-", input=json.dumps(listed))
    token = kube_api.kubectl(
        "create", "token", name, f"--namespace={namespace}", "--duration=1h"
    ).strip()
    return kube_api.kubeconfig_for(
        token=token, path=kube_api.directory / f"{namespace}-{name}.kubeconfig"
    )


def _object(version: str, kind: str, name: str, namespace: str, **more: object) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}
