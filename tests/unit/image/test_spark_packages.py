"""What the rollup image leaves out is there to be left out, and what only rollups need is kept apart from what the operator has."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from image import java, packages

JARS = Path(pyspark.__file__).parent / "jars"
GLOBS = [Path(glob).name for cut in java.JARS for glob in cut.globs if glob.endswith(".jar")]


@pytest.mark.parametrize("glob", GLOBS)
def test_each_kind_of_jar_that_is_left_out_is_one_of_spark_s(glob: str) -> None:
    assert list(JARS.glob(glob))


@pytest.mark.parametrize("name", ["hive-storage-api", "scala-reflect", "jakarta.ws.rs-api", "icu4j", "kubernetes-client", "parquet-hadoop"])
def test_jars_that_a_session_cannot_open_without_stay(name: str) -> None:
    left_out = {jar for glob in GLOBS for jar in JARS.glob(glob)}
    assert set(JARS.glob(f"{name}-[0-9]*.jar")) - left_out


def test_what_the_operator_has_already_is_not_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    common = "click==8.3 \\\n    --hash=sha256:aa\nsix==1.17 \\\n    --hash=sha256:bb\n"
    further = "numpy==2.4 ; python_full_version < '3.12' \\\n    --hash=sha256:cc \\\n    --hash=sha256:dd\n"
    locked = {"": common, "rollup": common.replace("six==", f"{further}six==")}
    monkeypatch.setattr(packages, "locked_requirements", lambda extra="": locked[extra])
    assert packages.rollup_requirements() == further
