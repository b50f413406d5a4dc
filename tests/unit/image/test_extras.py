"""Images of more than the operator: the operator's, and the packages of one extra."""

from __future__ import annotations

from pathlib import Path

import pytest

from image import CONSOLE, FORWARDER, OPERATOR, layers, packages
from image.__main__ import main


def test_what_the_operator_has_already_is_not_installed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    common = "click==8.3 \\\n    --hash=sha256:aa\nsix==1.17 \\\n    --hash=sha256:bb\n"
    further = "nicegui==3.18 \\\n    --hash=sha256:cc \\\n    --hash=sha256:dd\n"
    locked = {"": common, "console": common.replace("six==", f"{further}six==")}
    monkeypatch.setattr(packages, "locked_requirements", lambda extra="": locked[extra])
    assert packages.extra_requirements("console") == further


def test_the_console_runs_as_the_operators_does_and_writes_only_below_tmp() -> None:
    of_console, of_operator = layers.config(edition=CONSOLE), layers.config(edition=OPERATOR)
    assert of_console.entrypoint == of_operator.entrypoint
    assert of_console.user == of_operator.user
    assert of_console.environment == {"NICEGUI_STORAGE_PATH": "/tmp/nicegui"}


def test_what_only_rollups_read_has_no_say_in_the_layers_of_other_images() -> None:
    for name in ("java.py", "java.toml"):
        content = (Path(layers.__file__).parent / name).read_bytes()
        assert content not in layers._recipes()
        assert content in layers._recipes("java")


def test_a_forwarder_runs_as_the_operator_does() -> None:
    assert layers.config(edition=FORWARDER).user == layers.config(edition=OPERATOR).user
    assert layers.config(edition=FORWARDER).entrypoint == layers.config(edition=OPERATOR).entrypoint


@pytest.mark.parametrize("edition", ["console", "forwarder"])
def test_there_is_no_dockerfile_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edition: str
) -> None:
    assert main([f"--{edition}", "--parts", str(tmp_path)]) == 1
    assert f"The Dockerfile makes no image of the {edition}" in capsys.readouterr().err
