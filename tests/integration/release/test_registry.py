"""What is released is found again: by Helm and skopeo in a real registry, by a real API server.

The images are small stand-ins; those of Tidegate are verified in the same way by
`make release DRY_RUN=1`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from image import packages
from lab.errors import LabError
from lab.image_archive import ImageConfig, sha256, write_layer
from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import Helm
from lab.process import started
from tools import kustomize_base
from tools.release import files, oci
from tools.release.__main__ import Release
from tools.release.oci import Layout, PlatformImage
from tools.release.registry import SigningKey, Skopeo, local_registry, logins
from tools.release.verify import Verifier, check_chart, check_files

pytestmark = pytest.mark.integration

REGISTRY = "registry.example/team"
PASSWORD = "first"
BCRYPT = (
    "$2b$04$abcdefghijklmnopqrstuuvybHXQqehXl2NdtAhT6BAmwe6EZ8HOi"  # what `htpasswd -B` makes of it
)
VERSION = packages.version()


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with local_registry() as address:
        yield address


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def small_image(place: Path, content: str) -> Layout:
    images = []
    for machine in ("x86_64", "aarch64"):
        tree = place / "trees" / machine
        tree.mkdir(parents=True)
        (tree / "content").write_text(f"{content} for {machine}")
        tar = place / f"{machine}.tar"
        write_layer(tree, tar)
        config = ImageConfig(entrypoint=("/content",))
        images.append(PlatformImage(machine, [(tar, sha256(tar))], config))
    layout = Layout(place / "layout")
    oci.add_image(layout, images, VERSION, annotations={})
    return layout


def release_of(place: Path, folder: str, content: str = "image") -> Release:
    """One with a small image instead of Tidegate's."""
    place.mkdir(parents=True, exist_ok=True)
    release = Release(
        VERSION, "", f"{REGISTRY}/{folder}", True, SigningKey.made(), (), place, place / "out"
    )
    release.out.mkdir()
    layout = small_image(place, content)
    release.add("image", "tidegate", layout, str(layout.held()["digest"]))
    return release


def verifier(release: Release, local: str, place: Path) -> Verifier:
    skopeo = Skopeo(place / "skopeo", plain_http=True)
    return Verifier(skopeo, release.key.public_pem, place / "fetched", release.registry, local)


def test_an_image_comes_back_for_every_processor_with_its_signatures(
    registry: str, tmp_path: Path
) -> None:
    release, local = release_of(tmp_path / "a", "first"), f"{registry}/first"
    looks = verifier(release, local, tmp_path)
    release.push(looks.skopeo, local)
    (image,) = release.pushed
    layout, line = looks.fetch(image, release.layouts[image.repository])
    assert image.digest in line
    assert sorted(oci.platforms(layout)) == ["amd64", "arm64"]
    assert "3 signatures" in looks.check_signatures(image, layout)
    another = replace(looks, public_pem=SigningKey.made().public_pem, folder=tmp_path / "again")
    with pytest.raises(LabError, match="not by the key of this release"):
        another.check_signatures(image, layout)


def test_a_version_that_is_there_is_never_replaced(registry: str, tmp_path: Path) -> None:
    release, local = release_of(tmp_path / "a", "second"), f"{registry}/second"
    looks = verifier(release, local, tmp_path)
    release.push(looks.skopeo, local)
    release.push(looks.skopeo, local)  # the same again, as after a broken line
    other = release_of(tmp_path / "b", "second", content="another")
    with pytest.raises(LabError, match="A version never changes, so nothing was pushed"):
        other.push(looks.skopeo, local)
    reference = f"{local}/tidegate:{VERSION}"
    manifest = looks.skopeo.manifest(reference)
    assert manifest is not None
    assert oci.digest_of(manifest) == release.pushed[0].digest
    with pytest.raises(LabError, match="somebody else pushed"):
        looks.fetch(other.pushed[0], other.layouts[other.pushed[0].repository])


def test_one_file_of_logins_serves_for_pushing_pulling_and_helm(helm: Helm, tmp_path: Path) -> None:
    environment = {"REGISTRY_LOGIN": ""}
    with local_registry(f"releaser:{BCRYPT}\n") as address:
        login = base64.b64encode(f"releaser:{PASSWORD}".encode()).decode()
        environment["REGISTRY_LOGIN"] = json.dumps({"auths": {address: {"auth": login}}})
        file = logins(environment, tmp_path / "logins")
        release, local = release_of(tmp_path / "a", "closed"), f"{address}/closed"
        release.make_chart(helm)
        with pytest.raises(LabError, match="unauthorized"):
            release.push(Skopeo(tmp_path / "skopeo", plain_http=True), local)
        looks = verifier(release, local, tmp_path)
        looks = replace(looks, skopeo=replace(looks.skopeo, logins=file))
        release.push(looks.skopeo, local)
        image, chart = release.pushed
        layout, _ = looks.fetch(image, release.layouts[image.repository])
        assert "3 signatures" in looks.check_signatures(image, layout)
        check_chart(
            helm,
            chart,
            reference=looks.reference(chart.repository),
            options=["--plain-http", "--registry-config", str(file)],
            folder=release.out,
        )


def test_helm_pulls_the_chart_and_renders_what_install_yaml_has(
    registry: str, helm: Helm, tmp_path: Path
) -> None:
    release, local = release_of(tmp_path / "a", "third"), f"{registry}/third"
    of_console = small_image(tmp_path / "console", "another")
    digest = str(of_console.held()["digest"])
    release.add("image of the console", "tidegate-console", of_console, digest)
    release.make_chart(helm)
    looks = verifier(release, local, tmp_path)
    release.push(looks.skopeo, local)
    image, console, chart = release.pushed
    packed = str(release.out / f"tidegate-{VERSION}.tgz")
    shown = helm.run("template", "t", packed, "--namespace", "t", "--set", "console.enabled=true")
    assert f"image: {console.pinned}" in shown.replace('"', "")
    line = check_chart(
        helm,
        chart,
        reference=looks.reference(chart.repository),
        options=["--plain-http"],
        folder=release.out,
    )
    assert image.pinned in line
    layout, _ = looks.fetch(chart, release.layouts[chart.repository])
    assert "1 signatures" in looks.check_signatures(chart, layout)


def test_a_changed_file_of_a_release_is_seen(tmp_path: Path) -> None:
    release = release_of(tmp_path, "fourth")
    (release.out / "install.yaml").write_text("---\n")
    release.sign_files()
    line = check_files(release.out, public_pem=release.key.public_pem)
    assert "2 files are as SHA256SUMS says" in line  # with the public key
    (release.out / "install.yaml").write_text("--- \n")
    with pytest.raises(LabError, match=r"install\.yaml has another SHA-256"):
        check_files(release.out, public_pem=release.key.public_pem)


@pytest.fixture
def bare_cluster() -> Iterator[KubeApi]:
    with started(KubeApi) as cluster:
        yield cluster


def test_kubectl_applies_the_manifest_to_a_bare_cluster(
    bare_cluster: KubeApi, helm: Helm, tmp_path: Path
) -> None:
    values = files.released_values(
        (files.CHART / "values.yaml").read_text(),
        repository=f"{REGISTRY}/tidegate",
        digest=f"sha256:{'a' * 64}",
        others={},
    )
    archive = files.write_chart(
        helm, tmp_path, work=tmp_path / "work", changed={"values.yaml": values}, version=VERSION
    )
    text = files.install_manifest(helm, str(archive), version=VERSION)
    for _ in range(2):  # the second time nothing is in its way
        bare_cluster.kubectl(
            "apply",
            "--server-side",
            "--validate=strict",
            "--warnings-as-errors",
            "-f",
            "-",
            input=text,
        )
    assert len(list(yaml.load_all(text, yaml.CSafeLoader))) > len(
        list(kustomize_base.CRDS.glob("*.yaml"))
    )
    image = bare_cluster.kubectl(
        "get",
        "deployment/tidegate",
        "-n",
        kustomize_base.NAMESPACE,
        "-o",
        "jsonpath={.spec.template.spec.containers[0].image}",
    )
    assert image == f"{REGISTRY}/tidegate@sha256:{'a' * 64}"
