"""Looks at a release as its users find it: fetched from the registry, with the public key alone.

Each check raises `LabError` with what is wrong, and returns a line for people about what was found.
"""

import base64
import gzip
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from image import packages
from image.build_tools import from_tree
from image.layers import may_lack
from image.packages import SITE
from lab.errors import LabError
from lab.image_archive import sha256
from lab.kubernetes.tools import Helm
from lab.packages import unpacked
from lab.process import output_of
from tools.release import files, krew, oci
from tools.release.oci import Layout
from tools.release.plan import Pushed
from tools.release.registry import (
    COSIGN_VERSION,
    SigningKey,
    Skopeo,
    checked_by_cosign,
    is_signed,
)

EMULATOR = ("qemu-user-static",)
_START_TIMEOUT_SECONDS = 300.0
_PACKAGES = ["tidegate", "tidegate_logic"]
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_IMPORT_ALL = (packages.ROOT / "image" / "import_all.py").read_text()
# as the script that an installer makes of the wheel's entry point
_RUN_COMMAND = """
import sys
import tidegate
from tidegate.cli import main
if not tidegate.__file__.startswith(sys.argv[1]):
    sys.exit(f"that is not the wheel's code: {tidegate.__file__}")
sys.argv[1:] = ["version", "--output", "json"]
sys.exit(main())
"""


@dataclass(frozen=True)
class Verifier:
    """What a check needs: who fetches, the public key as PEM, and a folder for what is fetched.

    `local` is what stands for the registry's name while it is pushed to another one (a dry run).
    """

    skopeo: Skopeo
    public_pem: str
    folder: Path
    registry: str
    local: str

    def reference(self, repository: str) -> str:
        """Where `repository` is in the registry that was pushed to."""
        return self.local + repository.removeprefix(self.registry)

    def fetch(self, pushed: Pushed, ours: Layout) -> tuple[Layout, str]:
        """What the registry has by the tag, which has to be what was pushed, blob for blob."""
        reference = f"{self.reference(pushed.repository)}:{pushed.tag}"
        manifest = self.skopeo.manifest(reference)
        found = "nothing" if manifest is None else oci.digest_of(manifest)
        if found != pushed.digest:
            raise LabError(
                f"The registry has {found} at {reference}, and {pushed.digest} was pushed. Has "
                f"somebody else pushed this version?"
            )
        layout = self.skopeo.pull(reference, self.folder / pushed.digest.replace(":", "-"))
        fetched, expected = layout.blobs(), ours.blobs()
        if fetched != expected:
            wrong = sorted(set(fetched) ^ set(expected))
            raise LabError(f"{reference} came back with other blobs than were pushed: {wrong}")
        return layout, (
            f"{pushed.title}: {pushed.digest}, {len(fetched)} blobs of "
            f"{sum(fetched.values()) / 1e6:.2f} MB came back with their digests"
        )

    def check_signatures(self, pushed: Pushed, layout: Layout) -> str:
        """The signatures of what the tag names, and of the image for each processor."""
        digests = _digests(pushed, layout)
        for digest in digests:
            self._check_signature(pushed.repository, digest)
        return f"{pushed.title}: {len(digests)} signatures are by the key of the release"

    def ask_cosign(self, pushed: Pushed, layout: Layout) -> str:
        """The same by cosign's own library, which also has to refuse another key."""
        place = self.reference(pushed.repository)
        names = [f"{place}@{digest}" for digest in _digests(pushed, layout)]
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            if self.skopeo.logins:
                shutil.copy(self.skopeo.logins, Path(folder) / "config.json")
            found = checked_by_cosign(names, self.public_pem, folder=Path(folder))
            if found != names:
                raise LabError(f"cosign looked at {found}, and was asked about {names}.")
            try:
                checked_by_cosign(names[:1], SigningKey.made().public_pem, folder=Path(folder))
            except LabError:
                return (
                    f"{pushed.title}: cosign {COSIGN_VERSION} finds them good, and not by another "
                    f"key"
                )
        raise LabError(f"cosign takes the signature of {names[0]} for one by another key.")

    def _check_signature(self, repository: str, digest: str) -> None:
        place = self.reference(repository)
        tag = oci.signature_tag(digest)
        signature = self.skopeo.pull(
            f"{place}:{tag}", self.folder / f"{place.rpartition('/')[2]}-{tag}"
        )
        statement, signed = oci.signature(signature, digest, repository=repository)
        if not is_signed(statement, signed, public_pem=self.public_pem):
            raise LabError(
                f"The signature of {repository}@{digest} is not by the key of this release. Do not "
                f"publish it; who else can push there?"
            )


def _digests(pushed: Pushed, layout: Layout) -> list[str]:
    return [pushed.digest, *(str(one["digest"]) for one in oci.platforms(layout).values())]


def check_that_checks_fail(statement: bytes, signature: bytes, *, public_pem: str) -> str:
    """A changed statement and another key are seen, or the other checks would say nothing."""
    another = SigningKey.made().public_pem
    if is_signed(statement + b" ", signature, public_pem=public_pem) or is_signed(
        statement, signature, public_pem=another
    ):
        raise LabError("A wrong signature was taken for a good one: openssl does not check them.")
    return "a changed file and another key are refused"


def check_files(folder: Path, *, public_pem: str) -> str:
    """Checksums of all files, and their signature."""
    sums = (folder / files.SUMS).read_bytes()
    signature = base64.b64decode((folder / f"{files.SUMS}.sig").read_bytes())
    if not is_signed(sums, signature, public_pem=public_pem):
        raise LabError(f"The signature of {folder / files.SUMS} is not by the key of this release.")
    if wrong := list(files.wrong_files(sums.decode(), folder)):
        raise LabError(f"Files of the release are not as {files.SUMS} says: {'; '.join(wrong)}.")
    refused = check_that_checks_fail(sums, signature, public_pem=public_pem)
    return f"{len(sums.splitlines())} files are as {files.SUMS} says, which is signed; {refused}"


def check_chart(
    helm: Helm, chart: Pushed, *, reference: str, options: Sequence[str], folder: Path
) -> str:
    """Helm itself pulls the chart and renders it: the same archive, and the same install.yaml."""
    name = f"oci://{reference}"
    chosen = ["--version", chart.tag, *options]
    archive = f"tidegate-{chart.tag}.tgz"
    with tempfile.TemporaryDirectory(prefix="tidegate-chart-") as place:
        helm.run("pull", name, *chosen, "--destination", place)
        pulled = (Path(place) / archive).read_bytes()
    if pulled != (folder / archive).read_bytes():
        raise LabError(f"Helm pulled another archive from {name} than was pushed.")
    rendered = files.install_manifest(helm, name, *chosen, version=chart.tag)
    if rendered != (folder / "install.yaml").read_text():
        raise LabError(f"{name} renders other objects than install.yaml has.")
    kinds = [document["kind"] for document in yaml.safe_load_all(rendered)]
    images = sorted(_images(rendered))
    return (
        f"chart: helm pulled it and rendered {len(kinds)} objects, the same as install.yaml, with "
        f"{', '.join(images)}"
    )


def _images(rendered: str) -> Iterator[str]:
    for document in yaml.safe_load_all(rendered):
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        yield from (container["image"] for container in pod.get("containers", ()))


def check_plugin(folder: Path) -> str:
    """The manifest of the plugin names the archive beside it, by its digest."""
    (platform_of,) = yaml.safe_load((folder / krew.MANIFEST).read_text())["spec"]["platforms"]
    archive = folder / str(platform_of["uri"]).rpartition("/")[2]
    if not archive.exists() or sha256(archive) != platform_of["sha256"]:
        raise LabError(
            f"{krew.MANIFEST} names {archive.name} with a digest that no such file here has, so "
            f"krew would refuse it."
        )
    return f"plugin of kubectl: {krew.MANIFEST} names {archive.name} by its digest"


def check_wheel(wheel: Path, *, version: str, work: Path) -> str:
    """The wheel has our two packages; its command runs with this environment's locked packages."""
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(work)  # noqa: S202 - we built it
    tops = sorted({path.name for path in work.iterdir() if not path.name.endswith(".dist-info")})
    if tops != _PACKAGES:
        raise LabError(
            f"{wheel.name} would put {', '.join(tops)} into site-packages. A release puts "
            f"{' and '.join(_PACKAGES)} there and nothing else: another project may own any other "
            f"name."
        )
    # -P and not -I: PYTHONPATH is how the wheel comes before the tree
    said = output_of(
        [sys.executable, "-P", "-c", _RUN_COMMAND, work],
        timeout_seconds=_START_TIMEOUT_SECONDS,
        working_directory=work,
        environment={**os.environ, "PYTHONPATH": str(work)},
    )
    if version not in said:
        raise LabError(f"The command of {wheel.name} says {said.strip()}, and not {version}.")
    return f"wheel: the command says {version}; it has {' and '.join(_PACKAGES)} and nothing else"


def start(layout: Layout, *, work: Path, further: Sequence[str] = ()) -> Iterator[str]:
    """Import all of Tidegate in the image of each processor, as it was fetched; a line for each.

    `further` are packages that this image has besides, which ours import inside functions. Another
    processor is emulated.
    """
    for name, manifest in oci.platforms(layout).items():
        root = work / name
        root.mkdir(parents=True)
        for layer in oci.manifest_layers(layout, manifest):
            with gzip.open(layer) as content, tarfile.open(fileobj=content, mode="r|") as tar:
                tar.extractall(root, filter="fully_trusted")  # noqa: S202 - we wrote it
        machine, absent = _MACHINES[name], ",".join(sorted(may_lack(further)))
        program = root / "usr/bin/python3.11"
        if machine == platform.machine():
            command, how = from_tree(program, base=root), "started"
        else:
            emulator = unpacked(EMULATOR) / f"usr/bin/qemu-{machine}-static"
            command, how = [str(emulator), "-L", str(root), str(program)], "started in an emulator"
        said = output_of(
            [*command, "-s", "-P", "-c", _IMPORT_ALL, root, absent, *further],
            timeout_seconds=_START_TIMEOUT_SECONDS,
            working_directory=root,
            environment={"PYTHONHOME": str(root / "usr"), "PYTHONPATH": str(root / SITE)},
        )
        shutil.rmtree(root)
        yield f"linux/{name}: {how}: {said.strip()}"
