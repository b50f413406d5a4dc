"""A release is refused for what is missing, and its files say what they hold."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import yaml

from image import FORWARDER, ROLLUP, packages
from image.layers import may_lack
from lab.errors import LabError
from lab.image_archive import ImageConfig, write_layer
from tools.release import files, oci, plan, verify
from tools.release.__main__ import Release, main, tree_of
from tools.release.oci import Layout, PlatformImage
from tools.release.plan import Pushed, Tree, notes, prepared, refusals, sections, versions
from tools.release.registry import SigningKey, _openssl, is_signed, logins

ROOT = Path(__file__).parents[3]
TODAY = date(2031, 5, 17)
CHANGELOG = """\
# Changelog

How lines are tagged.

## Unreleased

## 1.3.0 - 2031-05-17

What it is about, with [a page](docs/index.md).

- [FEATURE] One thing ([how](docs/how.md#part)),
  in two lines.
- [BUGFIX] Another.
- [CHANGE] A third, see [the standard](https://example.org/x).

## 1.2.0 - 2031-01-02

- [FEATURE] Old.
"""
READY = Tree(
    version="1.3.0",
    versions={"pyproject.toml": "1.3.0", "Chart.yaml": "1.3.0"},
    changelog=CHANGELOG,
    changes=(),
    tags=("v1.3.0",),
    home="https://code.tidegate.test/tidegate",
)


def refused(tree: Tree = READY, **other: object) -> list[str]:
    facts = {"registry": "registry.example/team", "key_problem": None, "with_rollups": True}
    return refusals(tree, **{**facts, "today": TODAY, **other})  # type: ignore[arg-type]


# --- what is missing ------------------------------------------------------------------------------
# Each refusal names the thing that is wrong, and what to run.


def test_a_tree_that_lacks_nothing_is_not_refused() -> None:
    assert refused() == []


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (replace(READY, changes=("README.md",)), "not what is committed: README.md"),
        (replace(READY, changes=tuple("abcdefg")), "a, b, c, d, e and 2 more"),
        (replace(READY, tags=()), "has no tag, and version 1.3.0 wants v1.3.0"),
        (replace(READY, tags=("v1.2.0",)), "has the tag v1.2.0, and version 1.3.0 wants v1.3.0"),
        (
            replace(READY, versions={**READY.versions, "Dockerfile": "1.2.0"}),
            "but Dockerfile has 1.2.0",
        ),
        (replace(READY, changelog="# Changelog\n\n## Unreleased\n"), "has no section 1.3.0"),
        (
            replace(READY, changelog="## 1.3.0 - 2031-05-17\n\n## 1.2.0 - 2031-01-02\n\n- a\n"),
            "section 1.3.0 of CHANGELOG.md is empty",
        ),
        (
            replace(READY, changelog=CHANGELOG.replace("1.3.0 - 2031-05-17", "1.3.0 - soon")),
            "has no day in its heading",
        ),
        (
            replace(READY, changelog=CHANGELOG.replace("2031-05-17", "2031-05-18")),
            "of 2031-05-18, which is still to come",
        ),
        (
            replace(
                READY,
                changelog=CHANGELOG.replace("Unreleased\n", "Unreleased\n\n- [BUGFIX] One.\n"),
            ),
            "unreleased entries (1)",
        ),
        (
            replace(READY, home="https://git.example.com/platform/tidegate"),
            "names https://git.example.com/platform/tidegate as the project's address",
        ),
    ],
)
def test_what_is_missing_is_said_and_nothing_else(tree: Tree, words: str) -> None:
    (reason,) = refused(tree)
    assert words in reason


def test_a_version_that_is_none_is_refused() -> None:
    assert "1.3, which is not MAJOR.MINOR.PATCH" in refused(replace(READY, version="1.3"))[0]


@pytest.mark.parametrize(
    "registry",
    ["https://registry.example/team", "registry.example/team/", "Registry.example/team", "a b"],
)
def test_a_registry_that_names_no_images_is_refused(registry: str) -> None:
    assert len(refused(registry=registry)) == 1


@pytest.mark.parametrize(
    "registry", ["registry.example", "registry.example:5000/a/b-c", "localhost:1"]
)
def test_a_registry_is_a_host_and_folders(registry: str) -> None:
    assert refused(registry=registry) == []


def test_without_a_registry_a_key_or_rollups_it_is_refused_for_each() -> None:
    reasons = refused(registry="", key_problem="No key.", with_rollups=False)
    assert len(reasons) == 3
    assert "No key." in reasons


def test_the_command_refuses_this_tree_before_it_builds_anything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tools.release.__main__.OUT", tmp_path / "out")
    monkeypatch.delenv("SIGNING_KEY", raising=False)
    assert main(["make"]) == 1
    said = capsys.readouterr().err
    assert "is not released, and nothing was built" in said
    assert "SIGNING_KEY_FILE" in said
    assert "REGISTRY" in said
    assert not (tmp_path / "out").exists()


# --- the version and the changelog ----------------------------------------------------------------


def test_only_what_is_on_loopback_is_installed_from_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["make", "--registry", "registry.example/team", "--on-kind"]) == 1
    assert "--on-kind needs --dry-run" in capsys.readouterr().err


def test_every_place_of_this_tree_names_the_same_version() -> None:
    tree = tree_of(ROOT)
    assert set(tree.versions.values()) == {packages.version()}
    assert set(tree.versions) == set(plan.PLACES)


def test_the_changelog_s_sections_of_this_tree_can_be_read() -> None:
    found = sections((ROOT / "CHANGELOG.md").read_text())
    assert plan.UNRELEASED in found
    assert all(plan.VERSION.fullmatch(name) for name in found if name != plan.UNRELEASED)


def texts(**changed: str) -> dict[str, str]:
    return {
        "pyproject.toml": 'name = "tidegate"\nversion = "1.2.0"\n',
        "uv.lock": 'name = "other"\nversion = "1.2.0"\n\nname = "tidegate"\nversion = "1.2.0"\n',
        "operator/tidegate/__init__.py": '__version__ = "1.2.0"\n',
        "charts/tidegate/Chart.yaml": 'version: 1.2.0\nappVersion: "1.2.0"\n',
        "Dockerfile": 'LABEL org.opencontainers.image.version="1.2.0" \\\n',
        "image/Dockerfile": '# tidegate:1.2.0\nLABEL org.opencontainers.image.version="1.2.0" \\\n',
        "docs/image.md": "tidegate-1.2.0.tar, tidegate-rollup:1.2.0, tidegate-console-1.2.0.tar, other:1.2.0, tidegate:1.2.0-rc.1",
        "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n- [FEATURE] New.\n",
        **changed,
    }


def test_a_version_is_set_where_it_is_ours_and_nowhere_else() -> None:
    changed = prepared(texts(), "1.3.0", today=TODAY)
    assert versions({**texts(), **changed}) == dict.fromkeys(plan.PLACES, "1.3.0")
    assert changed["uv.lock"].startswith('name = "other"\nversion = "1.2.0"')
    assert "# tidegate:1.3.0\n" in changed["image/Dockerfile"]
    assert changed["docs/image.md"] == (
        "tidegate-1.3.0.tar, tidegate-rollup:1.3.0, tidegate-console-1.3.0.tar, other:1.2.0, tidegate:1.2.0-rc.1"
    )


def test_what_was_unreleased_comes_below_the_version_s_introduction() -> None:
    changelog = (
        "# Changelog\n\n## Unreleased\n\n- [FEATURE] New.\n\n## 1.3.0 - no day yet\n\nWhat it is.\n"
        "\n## 1.2.0 - 2031-01-02\n\n- [FEATURE] Old.\n"
    )
    changed = prepared(texts(**{"CHANGELOG.md": changelog}), "1.3.0", today=TODAY)["CHANGELOG.md"]
    assert changed == (
        "# Changelog\n\n## Unreleased\n\n## 1.3.0 - 2031-05-17\n\nWhat it is.\n\n- [FEATURE] New.\n"
        "\n## 1.2.0 - 2031-01-02\n\n- [FEATURE] Old.\n"
    )


def test_remarks_for_those_who_write_the_changelog_are_not_released() -> None:
    changelog = "## Unreleased\n\n<!-- To be 1.3.0.\nReally. -->\nWhat it is.\n\n- [FEATURE] New.\n"
    changed = prepared(texts(**{"CHANGELOG.md": changelog}), "1.3.0", today=TODAY)["CHANGELOG.md"]
    assert changed == (
        "## Unreleased\n\n## 1.3.0 - 2031-05-17\n\nWhat it is.\n\n- [FEATURE] New.\n"
    )


def test_sentences_about_the_old_version_are_named_for_people() -> None:
    pages = {
        "SECURITY.md": "| Version |\n| the main branch (1.2, API v1) |\n| anything at 11.2 |\n",
        "docs/a.md": "It is at version 1.2, and took 1.2 s.",
        "CHANGELOG.md": "Version 1.2 had this.",
    }
    assert plan.named_in_sentences(pages, "1.2.0") == ["SECURITY.md:2", "docs/a.md:1"]


def test_a_tree_that_was_prepared_is_ready_but_for_its_commit() -> None:
    before = texts()
    after = {**before, **prepared(before, "1.3.0", today=TODAY)}
    tree = Tree("1.3.0", versions(after), after["CHANGELOG.md"], (), ("v1.3.0",), READY.home)
    assert refused(tree) == []
    assert prepared(after, "1.3.0", today=TODAY) == {}


def test_a_version_that_is_out_takes_no_new_entries() -> None:
    changelog = "## Unreleased\n\n- [BUGFIX] New.\n\n## 1.3.0 - 2031-05-16\n\n- [FEATURE] Old.\n"
    with pytest.raises(LabError, match="Choose the next version"):
        prepared(texts(**{"CHANGELOG.md": changelog}), "1.3.0", today=TODAY)


def test_a_version_is_three_numbers() -> None:
    with pytest.raises(LabError, match=r"0\.2 is no version"):
        prepared(texts(), "0.2", today=TODAY)


# --- notes ----------------------------------------------------------------------------------------


def test_notes_begin_with_what_needs_attention_and_lead_nowhere_that_is_not_there() -> None:
    chart = Pushed("chart", "registry.example/charts/tidegate", "1.3.0", "sha256:cc")
    text = notes(sections(CHANGELOG)["1.3.0"], [chart])
    headings = [
        line for line in text.splitlines() if line.startswith("#") and "without" not in line
    ]
    assert headings == [
        "# Tidegate 1.3.0",
        "## What needs your attention when you upgrade",
        "## New",
        "## Fixed",
    ]
    assert "- One thing (how),\n  in two lines." in text
    assert "[the standard](https://example.org/x)" in text
    assert "](docs/" not in text
    assert "oci://registry.example/charts/tidegate --version 1.3.0" in text
    assert "`registry.example/charts/tidegate@sha256:cc`" in text
    assert "Old." not in text


def test_every_entry_of_a_section_is_in_the_notes() -> None:
    unreleased = sections((ROOT / "CHANGELOG.md").read_text())[plan.UNRELEASED]
    if not unreleased.text.strip():
        pytest.skip("nothing is unreleased")
    text = notes(unreleased, [])
    assert text.count("\n- ") == unreleased.text.count("\n- ") + unreleased.text.startswith("- ")


def test_before_a_version_has_a_section_its_notes_are_what_is_unreleased() -> None:
    changelog = "## Unreleased\n\n<!-- A remark. -->\nWhy.\n\n- [BUGFIX] One.\n"
    text = notes(plan.section_of(changelog, "1.3.0"), [])
    assert text == "# Tidegate 1.3.0\n\nWhy.\n\n## Fixed\n\n- One.\n"
    assert plan.section_of(CHANGELOG, "1.2.0").text == "- [FEATURE] Old."


def test_an_entry_whose_tag_means_nothing_here_is_not_lost() -> None:
    section = plan.Section(
        "1.3.0", "", "Why.\n\n- Short.\n\n- [SPEED] Fast.\n- Plain.\n- [FEATURE] New."
    )
    text = notes(section, [])
    assert "Why.\n\n- Short.\n\n## New" in text
    assert text.endswith("## New\n\n- New.\n\n## Other\n\n- Fast.\n- Plain.\n")


# --- what a registry gets -------------------------------------------------------------------------


def platform(place: Path, machine: str, *, shared: bytes = b"same") -> PlatformImage:
    layers = []
    for name, content in {"base": machine.encode(), "own": shared}.items():
        tree = place / machine / name
        tree.mkdir(parents=True)
        (tree / name).write_bytes(content)
        tar = place / machine / f"{name}.tar"
        write_layer(tree, tar)
        layers.append((tar, files.sha256(tar)))
    return PlatformImage(machine, layers, ImageConfig(entrypoint=("/usr/bin/tidegate",)))


def image(place: Path, name: str = "layout") -> tuple[Layout, str]:
    place.mkdir(exist_ok=True)
    layout = Layout(place / name)
    images = [platform(place / name, machine) for machine in ("x86_64", "aarch64")]
    return layout, oci.add_image(layout, images, "1.3.0", annotations={"a": "b"})


def test_an_index_has_an_image_for_each_processor_with_its_own_name(tmp_path: Path) -> None:
    layout, digest = image(tmp_path)
    held = layout.held()
    assert (held["mediaType"], held["digest"]) == (oci.INDEX, digest)
    for name, manifest in oci.platforms(layout).items():
        content = layout.json(manifest)
        config = layout.json(content["config"])
        assert (config["architecture"], manifest["platform"]["os"]) == (name, "linux")
        tars = [
            gzip.decompress(path.read_bytes()) for path in oci.manifest_layers(layout, manifest)
        ]
        found = [f"sha256:{files.hashlib.sha256(tar).hexdigest()}" for tar in tars]
        assert found == config["rootfs"]["diff_ids"]
    assert list(oci.platforms(layout)) == ["amd64", "arm64"]


def test_a_layer_that_processors_share_is_kept_once(tmp_path: Path) -> None:
    layout, _ = image(tmp_path)
    own = {str(oci.manifest_layers(layout, one)[-1]) for one in oci.platforms(layout).values()}
    assert len(own) == 1


def test_the_same_layers_make_the_same_digest_anywhere(tmp_path: Path) -> None:
    assert image(tmp_path, "here")[1] == image(tmp_path, "there")[1]


def test_a_blob_that_was_changed_is_seen(tmp_path: Path) -> None:
    layout, digest = image(tmp_path)
    path = layout.directory / "blobs/sha256" / digest.removeprefix("sha256:")
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(LabError, match="another SHA-256"):
        layout.blobs()
    with pytest.raises(LabError, match="another SHA-256"):
        oci.platforms(layout)


def test_a_signature_of_another_image_is_not_taken_for_this_one_s(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    oci.add_signature(
        layout, "sha256:aa", repository="registry.example/a", sign=lambda _: b"signed"
    )
    statement, signed = oci.signature(layout, "sha256:aa", repository="registry.example/a")
    assert (json.loads(statement)["critical"]["type"], signed) == (
        "cosign container image signature",
        b"signed",
    )
    for digest, repository in (("sha256:bb", "registry.example/a"), ("sha256:aa", "other/a")):
        with pytest.raises(LabError, match="signs another image"):
            oci.signature(layout, digest, repository=repository)


# --- keys -----------------------------------------------------------------------------------------


def test_what_was_signed_is_verified_by_the_public_key_and_nothing_else_is() -> None:
    key, other = SigningKey.made(), SigningKey.made()
    signature = key.sign(b"content")
    assert is_signed(b"content", signature, public_pem=key.public_pem)
    assert not is_signed(b"content!", signature, public_pem=key.public_pem)
    assert not is_signed(b"content", signature, public_pem=other.public_pem)
    assert not is_signed(b"content", b"no signature", public_pem=key.public_pem)


@pytest.mark.parametrize("content", ["", " \n", "x"])
def test_what_is_no_key_is_said_with_the_place_it_was_looked_for(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "key").write_text(content)
    with pytest.raises(LabError, match="no key that can sign") as raised:
        SigningKey.read(str(tmp_path / "key"))
    assert f"SIGNING_KEY_FILE={tmp_path / 'key'}" in str(raised.value)
    with pytest.raises(LabError, match="no key that can sign"):
        SigningKey.read(str(tmp_path / "absent"))
    with pytest.raises(LabError, match=r"There is no key.*SIGNING_KEY_FILE="):
        SigningKey.read("")


def test_a_key_with_a_password_comes_by_pipes_and_signs(tmp_path: Path) -> None:
    pem = _openssl(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], b"")
    locked = _openssl(["pkey", "-aes256", "-passout", "pass:open sesame"], pem)
    pipes = []
    for content in (locked, b"open sesame\n"):
        reading, writing = os.pipe()
        os.write(writing, content)
        os.close(writing)
        pipes.append(reading)
    key = SigningKey.read(*(f"/dev/fd/{pipe}" for pipe in pipes))
    for pipe in pipes:
        assert os.read(pipe, 1) == b""  # nothing is left for who has the pipe as well
        os.close(pipe)
    assert is_signed(b"content", key.sign(b"content"), public_pem=key.public_pem)
    (tmp_path / "key").write_bytes(locked)
    with pytest.raises(LabError, match="no key that can sign"):
        SigningKey.read(str(tmp_path / "key"))


@pytest.mark.parametrize("name", ["SIGNING_KEY", "SIGNING_KEY_PASSWORD"])
def test_a_key_in_the_environment_is_refused_even_in_a_dry_run(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tools.release.__main__.OUT", tmp_path / "out")
    monkeypatch.setenv(name, "a secret")
    assert main(["make", "--dry-run"]) == 1
    said = capsys.readouterr().err
    assert f"{name} in the environment" in said
    assert "SIGNING_KEY_FILE=" in said
    assert "a secret" not in said
    assert not (tmp_path / "out").exists()


def test_a_login_from_the_environment_is_for_its_owner_and_for_no_other_program(
    tmp_path: Path,
) -> None:
    environment = {"REGISTRY_LOGIN": '{"auths": {}}', "DOCKER_CONFIG": str(tmp_path)}
    path = logins(environment, tmp_path / "logins")
    assert path is not None
    assert (path.read_text(), path.stat().st_mode & 0o777) == ('{"auths": {}}', 0o600)
    assert "REGISTRY_LOGIN" not in environment
    assert logins(environment, tmp_path) is None
    (tmp_path / "config.json").write_text("{}")
    assert logins(environment, tmp_path) == tmp_path / "config.json"


def test_a_key_on_another_curve_is_refused() -> None:
    pem = _openssl(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"], b"")
    with pytest.raises(LabError, match="P-256"):
        SigningKey(pem.decode())


# --- what is built without the key, and signed elsewhere ------------------------------------------


def of_commit(folder: Path, revision: str = "c0ffee") -> Release:
    out = folder / "0.2.0"
    out.mkdir(parents=True, exist_ok=True)
    name = "registry.example/team"
    return Release("0.2.0", revision, name, True, SigningKey.made(), (), folder / "work", out)


def built(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    release = of_commit(folder)
    layout, digest = image(tmp_path)
    release.add("image", "tidegate", layout, digest)
    (release.out / "install.yaml").write_text("content")
    release.keep(folder)
    return folder


def test_what_was_built_is_taken_with_its_digests(tmp_path: Path) -> None:
    release = of_commit(built(tmp_path))
    release.take(release.out.parent)
    (one,) = release.pushed
    assert one.repository == "registry.example/team/tidegate"
    assert release.layouts[one.repository].held()["digest"] == one.digest
    assert oci.platforms(release.layouts[one.repository])


def test_what_is_not_as_it_was_built_is_not_signed(tmp_path: Path) -> None:
    folder = built(tmp_path)
    blob = next(path for path in (folder / "built/tidegate/blobs/sha256").iterdir())
    for path in (folder / "0.2.0/install.yaml", blob, folder / "0.2.0/further"):
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(b"another")
        with pytest.raises(LabError, match=f"nothing was signed: [^ ]*{path.name}"):
            of_commit(folder).take(folder)
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
    with pytest.raises(LabError, match="of commit c0ffee"):
        of_commit(folder, "another").take(folder)
    (folder / "BUILT.sha256").unlink()
    with pytest.raises(LabError, match="make release-build"):
        of_commit(folder).take(folder)


# --- files ----------------------------------------------------------------------------------------


def test_a_released_chart_names_its_images_and_keeps_everything_else() -> None:
    before = (files.CHART / "values.yaml").read_text()
    after = files.released_values(
        before,
        repository="registry.example/tidegate",
        digest="sha256:aa",
        others={"rollup": "r@sha256:bb", "console": "c@sha256:cc"},
    )
    old, new = yaml.safe_load(before), yaml.safe_load(after)
    assert new["image"] == {
        **old["image"],
        "repository": "registry.example/tidegate",
        "digest": "sha256:aa",
    }
    assert new["rollup"]["image"] == "r@sha256:bb"
    assert new["console"]["image"] == "c@sha256:cc"
    assert not new["console"]["enabled"]
    new["image"], new["rollup"]["image"], new["console"]["image"] = old["image"], "", ""
    assert new == old
    assert len(after.splitlines()) == len(before.splitlines())


def test_a_chart_without_the_places_for_images_is_not_released() -> None:
    with pytest.raises(LabError, match="0 places"):
        files.released_values("image: {}\n", repository="a", digest="b", others={})


def test_an_index_of_charts_is_shown_the_released_images() -> None:
    before = (files.CHART / "Chart.yaml").read_text()
    pinned = {
        "tidegate": "r.example/tidegate@sha256:aa",
        "tidegate-console": "r.example/c@sha256:b",
    }
    after = yaml.safe_load(files.released_description(before, pinned))
    shown = yaml.safe_load(after["annotations"].pop("artifacthub.io/images"))
    old = yaml.safe_load(before)
    images = yaml.safe_load(old["annotations"].pop("artifacthub.io/images"))
    assert after == old
    assert {one["name"]: one["image"] for one in shown} == {
        **{one["name"]: one["image"] for one in images},
        "operator": pinned["tidegate"],
        "console": pinned["tidegate-console"],
    }


RENDERED = """\
---
# Source: tidegate/templates/service.yaml
apiVersion: v1
kind: Service
metadata:
  name: tidegate
  labels:
    helm.sh/chart: tidegate-1.3.0
    app.kubernetes.io/name: tidegate
---
# a comment and nothing else
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.tidegate.io}
"""


def test_definitions_come_before_what_needs_them_and_helm_is_not_named() -> None:
    text = files.in_order(RENDERED, version="1.3.0")
    kinds = [document["kind"] for document in yaml.safe_load_all(text)]
    assert kinds == ["Namespace", "CustomResourceDefinition", "Service"]
    assert "helm.sh" not in text
    assert text.startswith("# Tidegate 1.3.0")


def test_every_file_has_a_line_and_every_line_its_file(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text(name)
    sums = files.checksums(tmp_path.iterdir())
    assert [line.split("  ")[1] for line in sums.splitlines()] == ["a.txt", "b.txt"]
    (tmp_path / files.SUMS).write_text(sums)
    assert list(files.wrong_files(sums, tmp_path)) == []
    (tmp_path / "a.txt").write_text("changed")
    (tmp_path / "b.txt").unlink()
    (tmp_path / "c.txt").touch()
    assert list(files.wrong_files(sums, tmp_path)) == [
        "a.txt has another SHA-256",
        "b.txt is missing",
        "c.txt has no line",
    ]


def test_a_chart_s_archive_has_no_times(tmp_path: Path) -> None:
    packed = tmp_path / "a.tgz"
    with tarfile.open(packed, "w:gz") as tar:
        for name in ("tidegate/b", "tidegate/a"):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = 1, 1_900_000_000
            tar.addfile(member, io.BytesIO(b"x"))
    with tarfile.open(fileobj=io.BytesIO(files._without_times(packed))) as tar:
        assert [(member.name, member.mtime) for member in tar] == [
            ("tidegate/a", 0),
            ("tidegate/b", 0),
        ]


# --- what is verified -----------------------------------------------------------------------------


def test_only_an_image_that_has_a_package_may_not_lack_it() -> None:
    columns = set(ROLLUP.further)
    assert may_lack(()) == columns | set(FORWARDER.further)
    assert may_lack(FORWARDER.further) == columns
    assert may_lack(ROLLUP.further) == set(FORWARDER.further)


def test_a_wheel_with_a_third_package_is_not_released(tmp_path: Path) -> None:
    wheel, work = tmp_path / "tidegate-0.2.0-py3-none-any.whl", tmp_path / "work"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("tidegate/__init__.py", "")
        packed.writestr("tidegate_logic/__init__.py", "")
        packed.writestr("controller_logic/__init__.py", "")
        packed.writestr("tidegate-0.2.0.dist-info/METADATA", "")
    with pytest.raises(LabError, match="would put controller_logic, tidegate, tidegate_logic into"):
        verify.check_wheel(wheel, version="0.2.0", work=work)
