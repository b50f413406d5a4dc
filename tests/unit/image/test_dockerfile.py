"""The Dockerfile and `make image` make the same images, under the version that the chart
installs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from image import OPERATOR, ROLLUP, Edition, layers, packages, rootfs
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
