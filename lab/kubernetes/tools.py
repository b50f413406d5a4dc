"""The Go binaries of `lab/kube_binary`.

`kube` is the API server's parts of a Kubernetes in one program, `kube-node` has a node's as well.

The first build of a machine compiles most of Kubernetes (five to nine minutes on two cores).
`api` and `kind` run the parts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from lab.packages import GoModule
from lab.process import output_of, patience

# What an API server of the lab writes down of the calls made to it: its audit policy. A test reads
# which rights were made use of.


def calls_policy() -> dict[str, object]:
    """Every finished call of a ServiceAccount outside kube-system, without its content."""
    quiet = {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]}
    recorded = {
        "level": "Metadata",
        "userGroups": ["system:serviceaccounts"],
        "omitStages": ["RequestReceived", "ResponseStarted"],
    }
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [quiet, recorded]}


# Argo CD's own interpreter of health scripts, and its custom resource definitions, from the Go
# module proxy.
#
# `lab/luahealth_binary` is Argo CD's module under another name, so that its files pin what is
# built. Only `make test-argo` needs it: the build takes minutes, and the daily tests have a Lua
# that is as strict.


ARGO_CD_VERSION = "v3.2.0"  # the newest whose module needs no files of its repository beside it
_ARGO_CD = f"github.com/argoproj/argo-cd/v3@{ARGO_CD_VERSION}"
_TIMEOUT_SECONDS = 60.0

LUAHEALTH = GoModule(
    program="luahealth",
    directory=Path(__file__).parent / "luahealth_binary",
    package="./cmd/luahealth",
    title="Argo CD's interpreter of health scripts",
    takes="four to six minutes",
    packages_compiled=1050,
)


def health_of(script: Path, objects: Sequence[Path]) -> list[dict[str, str]]:
    """What Argo CD would show of each object, a file of JSON: `status` and `message`.

    Raises `LabError` where the script fails.
    """
    command = [LUAHEALTH.binary(), script, *objects]
    said = output_of(command, timeout_seconds=_TIMEOUT_SECONDS)
    return [json.loads(line) for line in said.splitlines()]


def argo_cd_crds() -> Path:
    """The folder with Argo CD's CRDs, out of the module that the interpreter is built from."""
    command = ["go", "mod", "download", "-json", _ARGO_CD]
    said = output_of(command, timeout_seconds=300.0, working_directory=LUAHEALTH.directory)
    return Path(json.loads(said)["Dir"]) / "manifests" / "crds"


# Helm, built from the Go module proxy: how a chart is rendered, checked and installed in tests.
#
# `lab/helm_binary` is upstream's module under another name, so that its files pin what is built;
# the command is upstream's own. Nothing of a person's own Helm (its cache, repositories and
# plugins) is read or written.


HELM_VERSION = "v3.19.5"  # the newest of the minor that is built for the lab's Kubernetes

_KNOW_KUBERNETES = ("chartutil", "lint/rules")

HELM = GoModule(
    program="helm",
    directory=Path(__file__).parent / "helm_binary",
    package="helm.sh/helm/v3/cmd/helm",
    title="Helm",
    takes="two to three minutes",
    packages_compiled=950,
    stamps=(
        f"helm.sh/helm/v3/internal/version.version={HELM_VERSION}",
        # as upstream's own Makefile stamps it; without a cluster, charts are rendered and linted
        # for this Kubernetes
        *(f"helm.sh/helm/v3/pkg/{package}.k8sVersionMajor=1" for package in _KNOW_KUBERNETES),
        *(f"helm.sh/helm/v3/pkg/{package}.k8sVersionMinor=34" for package in _KNOW_KUBERNETES),
    ),
)


class Helm:
    """Helm with a home of its own in `home`.

    `kubeconfig` is needed only by what talks to a cluster.
    """

    def __init__(self, home: Path, kubeconfig: Path | None = None) -> None:
        self._binary = HELM.binary()
        places = {
            name: str(home / name.lower())
            for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR")
        }
        # Nothing listens there: without a kubeconfig, no cluster that happens to be around is
        # spoken to.
        cluster = {"KUBECONFIG": str(kubeconfig or home / "no-kubeconfig")}
        self._environment = {**os.environ, **places, **cluster}

    def run(self, *arguments: str, timeout_seconds: float = 60.0) -> str:
        """What helm writes to stdout.

        Raises `CommandFailed` when it ends with another code than 0, `LabError` when it has not
        ended in time.
        """
        return output_of(
            [self._binary, *arguments],
            timeout_seconds=timeout_seconds,
            environment=self._environment,
        )


def run_kubectl(
    binary: Path,
    kubeconfig: Path,
    arguments: Sequence[str],
    *,
    input: str | None,
    timeout_seconds: float,
) -> str:
    """What kubectl, the part of `binary`, writes to stdout; its cache is beside the kubeconfig.

    `input` goes to its stdin (`-f -`), and a `--timeout` in seconds grows with the machine's
    slowness, as `timeout_seconds` does. Raises `CommandFailed` when it ends with another code than
    0, `LabError` when it has not ended in time.
    """
    command: list[str | Path] = [
        binary,
        "kubectl",
        f"--kubeconfig={kubeconfig}",
        f"--cache-dir={kubeconfig.parent / 'kubectl'}",
        *map(_with_patience, arguments),
    ]
    return output_of(command, timeout_seconds=timeout_seconds, input=input or "")


def _with_patience(argument: str) -> str:
    found = re.fullmatch(r"--timeout=(\d+)s", argument)
    return f"--timeout={patience(int(found[1])):.0f}s" if found else argument


KUBERNETES_VERSION = "v1.34.4"

_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def kube_binary() -> Path:
    """The path of `kube`, built first when the cache has none for these sources.

    Raises `LabError` when Go is missing or fails.
    """
    return KUBE.binary()


def _stamps() -> Iterator[str]:
    # Unstamped, a server calls itself v0.0.0-master, and whatever compares versions misbehaves.
    major, minor, _ = KUBERNETES_VERSION.lstrip("v").split(".")
    stamp = {
        "gitVersion": KUBERNETES_VERSION,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    for package in _VERSION_PACKAGES:
        yield from (f"{package}.{name}={value}" for name, value in stamp.items())


_DIRECTORY = Path(__file__).parent / "kube_binary"

KUBE = GoModule(
    program="kube",
    directory=_DIRECTORY,
    package="./cmd/kube",
    title="Kubernetes",
    takes="five to nine minutes",
    packages_compiled=2600,
    stamps=tuple(_stamps()),
)

KUBE_NODE = replace(
    KUBE,
    program="kube-node",
    package="./cmd/kube-node",
    title="Kubernetes with a node",
    takes="two to ten minutes",
    packages_compiled=2900,
)

# The container that holds a Pod's namespaces open.
PAUSE = GoModule(
    program="pause",
    directory=_DIRECTORY,
    package="./cmd/pause",
    title="The pause container's program",
    takes="some seconds",
    packages_compiled=60,
)
