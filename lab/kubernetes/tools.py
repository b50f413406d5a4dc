"""The Go binaries of `lab/kube_binary`: `kube`, the API server's parts of a Kubernetes in one program; `kube-node`, with a node's as well.

The first build of a machine compiles most of Kubernetes (five to nine minutes on two cores). Running the parts is the business of
`kube_api` and `kube_node`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lab.go_module import GoModule

KUBERNETES_VERSION = "v1.34.4"

_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def kube_binary() -> Path:
    """The path of `kube`, built first when the cache has none for these sources; raises `LabError` when Go is missing or fails."""
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
    announcement=f"building Kubernetes {KUBERNETES_VERSION} from the Go module proxy; five to nine minutes on two cores, only this once",
    packages_compiled=2600,
    stamps=tuple(_stamps()),
)

KUBE_NODE = GoModule(
    program="kube-node",
    directory=_DIRECTORY,
    package="./cmd/kube-node",
    title="Kubernetes with a node",
    announcement=f"building Kubernetes {KUBERNETES_VERSION} with a node's parts; two to ten minutes on two cores, only this once",
    packages_compiled=2900,
    stamps=tuple(_stamps()),
)

# The container that holds a Pod's namespaces open.
PAUSE = GoModule(
    program="pause",
    directory=_DIRECTORY,
    package="./cmd/pause",
    title="The pause container's program",
    announcement="building the pause container's program",
    packages_compiled=60,
)
