"""Java and Spark in the rollup image: how they are started, which classes are recorded, which jars
are left out.
"""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from pathlib import Path

import pyspark
import pytest

from image import java, packages, spark_start
from image.java import in_order, recording_command
from image.spark_start import (
    ARCHIVE_OPTIONS,
    LEFT_OUT_MODULE,
    MODULE_OPTIONS,
    SPARK_HOME,
    driver_command,
    executor_command,
    name_of_user,
)

# --- starting -------------------------------------------------------------------------------------
# How Java is started in the rollup image: as Spark's own scripts would, which need a shell.


ENVIRONMENT = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "2",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "orders-exec-2",
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A file system with two jars in it, and something beside them."""
    jars = tmp_path / SPARK_HOME / "jars"
    jars.mkdir(parents=True)
    for name in ("b-1.jar", "a-2.jar", "README"):
        (jars / name).touch()
    return str(tmp_path)


def test_a_user_whom_no_file_names_has_a_name_for_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert name_of_user({}, str(tmp_path)) == {}  # this one has a name
    monkeypatch.setattr(os, "getuid", lambda: 1_000_650_000)
    assert name_of_user({}, str(tmp_path)) == {}  # an image without the library
    library = tmp_path / "usr/lib/x86_64-linux-gnu/libnss_wrapper.so"
    library.parent.mkdir(parents=True)
    library.touch()
    given = name_of_user({"LD_PRELOAD": "/own.so"}, str(tmp_path))
    assert given["LD_PRELOAD"] == f"{library}:/own.so"
    name, _, uid, *_ = Path(given["NSS_WRAPPER_PASSWD"]).read_text().split(":")
    assert (name, uid) == ("tidegate", "1000650000")


def class_path_of(command: list[str]) -> list[str]:
    return command[command.index("-cp") + 1].split(":")


def test_jars_come_in_one_order_whatever_the_file_system_thinks(root: str) -> None:
    assert class_path_of(driver_command(["pyspark-shell"], root)) == [
        f"{SPARK_HOME}/jars/a-2.jar",
        f"{SPARK_HOME}/jars/b-1.jar",
    ]


def test_what_others_add_to_the_class_path_comes_after_what_the_archive_was_made_of(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", "/opt/spark/conf")
    assert class_path_of(
        executor_command({**ENVIRONMENT, "SPARK_CLASSPATH": "/own/more.jar"}, root)
    )[-2:] == [
        "/own/more.jar",
        "/opt/spark/conf",
    ]


def test_driver_and_executor_begin_with_the_same_java_the_same_archive_and_the_same_jars(
    root: str,
) -> None:
    driver, executor = driver_command(["pyspark-shell"], root), executor_command(ENVIRONMENT, root)
    shared = 1 + len(ARCHIVE_OPTIONS) + len(["-cp", "path"])
    assert driver[:shared] == executor[:shared]
    assert driver[0] == "usr/lib/jvm/java-17/bin/java"


@pytest.mark.parametrize(
    ("settings", "memory"),
    [
        ([], "-Xmx1g"),
        (["--conf", "spark.driver.memory=768m"], "-Xmx768m"),
        (["--conf", "spark.driver.memory="], "-Xmx1g"),
    ],
)
def test_a_driver_has_the_heap_that_it_was_given(
    root: str, settings: list[str], memory: str
) -> None:
    assert memory in driver_command([*settings, "pyspark-shell"], root)


def test_a_driver_hands_all_its_arguments_to_spark(root: str) -> None:
    arguments = [
        "--conf",
        "spark.driver.extraJavaOptions=-Da='b c' -XX:+UseParallelGC",
        "--conf",
        "spark.app.name=x=y",
        "pyspark-shell",
    ]
    command = driver_command(arguments, root)
    assert command[-len(arguments) - 1 :] == ["org.apache.spark.deploy.SparkSubmit", *arguments]
    assert command[command.index("-Da=b c") :][:2] == ["-Da=b c", "-XX:+UseParallelGC"]


def test_an_executor_gets_what_spark_gave_its_pod(root: str) -> None:
    command = executor_command(ENVIRONMENT, root)
    words = command[command.index(spark_start.EXECUTOR) + 1 :]
    assert dict(zip(words[::2], words[1::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
        "--executor-id": "2",
        "--cores": "1",
        "--app-id": "spark-app",
        "--hostname": "10.0.0.8",
        "--resourceProfileId": "0",
        "--podName": "orders-exec-2",
    }
    assert {"-Xms512m", "-Xmx512m"} <= set(command)


def test_an_executor_s_options_stay_in_their_order_beyond_the_tenth(root: str) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2, 0)}
    command = executor_command({**ENVIRONMENT, **options}, root)
    assert [word for word in command if word.startswith("-Dn=")] == ["-Dn=0", "-Dn=2", "-Dn=10"]


def test_the_module_of_machine_learning_is_not_asked_for(root: str) -> None:
    assert LEFT_OUT_MODULE not in executor_command(
        {**ENVIRONMENT, "SPARK_JAVA_OPT_0": LEFT_OUT_MODULE}, root
    )
    assert LEFT_OUT_MODULE not in MODULE_OPTIONS


def test_an_executor_without_a_driver_says_what_is_missing(root: str) -> None:
    with pytest.raises(KeyError, match="SPARK_DRIVER_URL"):
        executor_command(
            {name: value for name, value in ENVIRONMENT.items() if name != "SPARK_DRIVER_URL"}, root
        )


def test_java_is_opened_as_far_as_spark_s_own_launcher_opens_it() -> None:
    launcher = next((Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar"))
    with zipfile.ZipFile(launcher) as jar:
        constants = jar.read("org/apache/spark/launcher/JavaModuleOptions.class").decode("latin-1")
    theirs = re.findall(r"(?:--[a-z-]+=[\w./=-]+|-XX:\+\w+|-Dio\.netty\.[\w.]+=\w+)", constants)
    assert set(theirs) == {*MODULE_OPTIONS, LEFT_OUT_MODULE}


def test_spark_lies_where_packages_are_installed() -> None:
    assert f"{packages.SITE}/pyspark" == SPARK_HOME


def test_spark_s_scratch_is_taken_away_and_what_links_in_it_lead_to_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, kept = tmp_path / "blockmgr", tmp_path / "kept"
    (scratch / "0a").mkdir(parents=True)
    kept.mkdir()
    (scratch / "0a" / "link").symlink_to(kept)
    monkeypatch.setattr("sys.argv", ["/usr/bin/rm", "-rf", str(scratch), str(tmp_path / "gone")])
    assert spark_start.main() == 0
    assert list(tmp_path.iterdir()) == [kept]


# --- classes --------------------------------------------------------------------------------------
# The record of classes: the same whatever the order in which threads loaded them.


def test_each_class_is_there_once_and_sorted_and_what_was_made_of_them_comes_after() -> None:
    record = "# a note\norg/b/B\n@lambda-proxy org/a/A run\njava/lang/Object\norg/b/B\n"
    assert in_order(record) == "java/lang/Object\norg/b/B\n@lambda-proxy org/a/A run\n"


def test_classes_of_other_loaders_than_the_program_s_are_left_out() -> None:
    assert in_order("A\nx/Generated id: 7 super: 1 source: /somewhere/else.jar\n") == "A\n"


def test_classes_are_recorded_with_what_the_image_starts_but_for_the_archive(
    tmp_path: Path,
) -> None:
    (tmp_path / SPARK_HOME / "jars").mkdir(parents=True)
    command = recording_command(["pyspark-shell"], str(tmp_path), record="/recorded/classes")
    assert command[1] == "-XX:DumpLoadedClassList=/recorded/classes"
    assert not set(command) & set(ARCHIVE_OPTIONS)
    assert "org.apache.spark.deploy.SparkSubmit" in command


# --- packages -------------------------------------------------------------------------------------
# What the rollup image leaves out is there to be left out, and what only rollups need is kept apart
# from what the operator has.


JARS = Path(pyspark.__file__).parent / "jars"
GLOBS = [Path(glob).name for cut in java.JARS for glob in cut.globs if glob.endswith(".jar")]


@pytest.mark.parametrize("glob", GLOBS)
def test_each_kind_of_jar_that_is_left_out_is_one_of_spark_s(glob: str) -> None:
    assert list(JARS.glob(glob))


@pytest.mark.parametrize(
    "name",
    [
        "hive-storage-api",
        "scala-reflect",
        "jakarta.ws.rs-api",
        "icu4j",
        "kubernetes-client",
        "parquet-hadoop",
    ],
)
def test_jars_that_a_session_cannot_open_without_stay(name: str) -> None:
    left_out = {jar for glob in GLOBS for jar in JARS.glob(glob)}
    assert set(JARS.glob(f"{name}-[0-9]*.jar")) - left_out


def test_what_the_operator_has_already_is_not_installed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    common = "click==8.3 \\\n    --hash=sha256:aa\nsix==1.17 \\\n    --hash=sha256:bb\n"
    further = (
        "numpy==2.4 ; python_full_version < '3.12' \\\n    --hash=sha256:cc \\\n    "
        "--hash=sha256:dd\n"
    )
    locked = {"": common, "rollup": common.replace("six==", f"{further}six==")}
    monkeypatch.setattr(packages, "locked_requirements", lambda extra="": locked[extra])
    assert packages.extra_requirements("rollup") == further
