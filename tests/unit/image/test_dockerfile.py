"""The Dockerfiles and `make image` make the same images, under the version that the chart
installs.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from image import CONSOLE, FORWARDER, OPERATOR, ROLLUP, Edition, layers, packages, rootfs
from image.__main__ import main
from image.layers import BuiltImage, Layer, reproducible_digest

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "image" / "Dockerfile").read_text()
STAGES = dict(
    re.findall(r"^FROM \S+ AS (\S+)$(.*?)(?=^FROM |\Z)", DOCKERFILE, flags=re.MULTILINE | re.DOTALL)
)
EDITIONS = pytest.mark.parametrize(
    ("stage", "edition"), [("operator", OPERATOR), ("rollup", ROLLUP)]
)


def instructions(stage: str, name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", STAGES[stage], flags=re.MULTILINE)


@EDITIONS
def test_it_runs_the_same_command_as_the_same_user(stage: str, edition: Edition) -> None:
    config = layers.config(edition=edition)
    assert tuple(json.loads(instructions(stage, "ENTRYPOINT")[0])) == config.entrypoint
    assert instructions(stage, "USER") == [config.user]


@EDITIONS
def test_it_has_the_same_labels(stage: str, edition: Edition) -> None:
    labels = dict(
        re.findall(
            r'(org\.opencontainers\.[\w.]+)="?([^"\n\\]*?)"?(?: \\)?$',
            STAGES[stage],
            flags=re.MULTILINE,
        )
    )
    assert labels == layers.config(revision="${REVISION}", edition=edition).labels


@EDITIONS
def test_it_has_the_revision_and_where_things_are_as_the_other_does(
    stage: str, edition: Edition
) -> None:
    environment = dict(word.split("=", 1) for word in instructions(stage, "ENV"))
    assert environment == layers.config(revision="${REVISION}", edition=edition).environment


def test_it_runs_the_same_script() -> None:
    assert "RUN python3 -m image --parts /image\n" in STAGES["build"]
    assert "RUN python3 -m image --rollup --parts /image\n" in STAGES["build-rollup"]


@pytest.mark.parametrize(
    ("stage", "parts"),
    [
        ("operator", rootfs.PARTS),
        ("rollup", (*rootfs.PARTS[:-1], *rootfs.ROLLUP_PARTS, rootfs.PARTS[-1])),
    ],
)
def test_it_copies_all_that_the_script_makes_in_the_order_of_the_layers(
    stage: str, parts: tuple[str, ...]
) -> None:
    copied = re.findall(
        r"^COPY --from=build(?:-rollup)? /image/(\w+)/ /$", STAGES[stage], flags=re.MULTILINE
    )
    assert tuple(copied) == parts


def test_without_a_target_it_is_the_operator_s() -> None:
    assert list(STAGES)[-1] == "operator"


def test_without_a_revision_there_is_none() -> None:
    config = layers.config()
    assert not config.environment
    assert "org.opencontainers.image.revision" not in config.labels


@pytest.mark.parametrize(
    "name",
    [
        "operator",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "uv.lock",
        "Makefile",
        "image",
        "tools/bootstrap-uv",
        "tools/uv.txt",
    ],
)
def test_what_the_build_reads_is_sent_to_the_engine(name: str) -> None:
    assert (ROOT / name).exists()
    assert f"!{name}" in (ROOT / ".dockerignore").read_text().splitlines()


def test_the_chart_installs_the_version_that_is_built() -> None:
    chart = yaml.safe_load((ROOT / "charts/tidegate/Chart.yaml").read_text())
    values = yaml.safe_load((ROOT / "charts/tidegate/values.yaml").read_text())
    assert chart["appVersion"] == packages.version()
    assert (values["image"]["repository"], values["image"]["tag"]) == (OPERATOR.repository, "")


def test_what_lies_in_a_directory_is_never_mixed_with_an_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").touch()
    assert main(["--parts", str(tmp_path)]) == 1
    assert "is not empty, so nothing was put there" in capsys.readouterr().err


def test_what_java_dumps_has_no_say_in_the_digest_that_two_builds_are_compared_by(
    tmp_path: Path,
) -> None:
    def digest(edition: Edition, *, classes: str, own: str) -> str:
        layers = [
            Layer("classes", tmp_path, classes, 0, 0, ()),
            Layer("own", tmp_path, own, 0, 0, ()),
        ]
        return reproducible_digest(
            BuiltImage(tmp_path, "a:1", f"sha256:{classes}{own}", layers, edition)
        )

    assert (
        digest(ROLLUP, classes="1", own="1")
        == digest(ROLLUP, classes="2", own="1")
        != digest(ROLLUP, classes="1", own="2")
    )
    assert digest(OPERATOR, classes="1", own="1") == "sha256:11"


# --- the plain one --------------------------------------------------------------------------------
# What is at the root, for people who know Docker: nothing of `image/` runs in it, so its pins and
# steps are compared with those.


PLAIN = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
BUILD, FINAL = (stage.partition("\n")[2] for stage in PLAIN.split("FROM ${BASE}")[1:])


def steps(stage: str, name: str) -> list[str]:
    return [" ".join(one.split()) for one in re.findall(rf"^{name} (.*)$", stage, re.MULTILINE)]


def test_the_plain_one_has_python_uv_and_packages_as_they_are_locked() -> None:
    (base,) = re.findall(r"^ARG BASE=python:(\S+)-slim-bookworm$", PLAIN, re.MULTILINE)
    assert f"python{base}/" in packages.SITE
    uv, export, _, install, build, own = steps(BUILD, "RUN")
    pinned = (ROOT / "tools" / "uv.txt").read_text()
    made = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert made is not None
    assert f"\nuv=={made[1]} " in pinned
    assert uv.endswith("--require-hashes -r tools/uv.txt")
    assert {"--frozen", "--no-default-groups", "--no-emit-project"} <= set(export.split())
    hashed = {"--no-deps", "--require-hashes", "--require-build-hashes", "--build-constraints"}
    assert hashed <= set(install.split())
    assert install.endswith("image/build-requirements.txt -r locked.txt")
    assert build.startswith("uv build ")
    assert "--require-hashes --build-constraints image/build-requirements.txt" in build
    assert {"--no-index", "--no-deps"} <= set(own.split())


def test_the_plain_one_copies_what_is_sent_and_all_that_the_wheel_is_made_of() -> None:
    sent = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    copied = [source for one in steps(BUILD, "COPY") for source in one.split()[:-1]]
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(source == one or source.startswith(f"{one}/") for one in sent), source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    read = [*(one.partition("/")[0] for one in wheel), *project["project"]["license-files"]]
    assert {*read, project["project"]["readme"], "pyproject.toml", "uv.lock"} <= set(copied)


def test_the_plain_one_is_run_like_the_other() -> None:
    config = layers.config(revision="${REVISION}")
    assert tuple(json.loads(steps(FINAL, "ENTRYPOINT")[0])) == config.entrypoint
    assert steps(FINAL, "USER") == [config.user]
    assert dict(one.split("=", 1) for one in steps(FINAL, "ENV")) == config.environment
    (labels,) = steps(FINAL, "LABEL")
    found = {name: quoted or bare for name, quoted, bare in _LABEL.findall(labels)}
    assert found == config.labels


_LABEL = re.compile(r'(org\.opencontainers\.[\w.]+)=(?:"([^"]*)"|(\S+))')


def test_the_plain_one_makes_every_edition_but_the_one_with_java() -> None:
    extras = set(re.findall(r"--build-arg EXTRA=(\w+)", PLAIN))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras == {"console", "forwarder"} < set(project["optional-dependencies"])
    for edition in (CONSOLE, FORWARDER):
        assert f"-t registry.example/{edition.repository}:{packages.version()} " in PLAIN
        assert edition.entrypoint == OPERATOR.entrypoint
