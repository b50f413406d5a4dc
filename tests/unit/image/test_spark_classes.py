"""The record of classes: the same whatever the order in which threads loaded them."""

from __future__ import annotations

from pathlib import Path

from image.java import in_order, recording_command
from image.spark_start import ARCHIVE_OPTIONS, SPARK_HOME


def test_each_class_is_there_once_and_sorted_and_what_was_made_of_them_comes_after() -> None:
    record = "# a note\norg/b/B\n@lambda-proxy org/a/A run\njava/lang/Object\norg/b/B\n"
    assert in_order(record) == "java/lang/Object\norg/b/B\n@lambda-proxy org/a/A run\n"


def test_classes_of_other_loaders_than_the_program_s_are_left_out() -> None:
    assert in_order("A\nx/Generated id: 7 super: 1 source: /somewhere/else.jar\n") == "A\n"


def test_classes_are_recorded_with_what_the_image_starts_but_for_the_archive(tmp_path: Path) -> None:
    (tmp_path / SPARK_HOME / "jars").mkdir(parents=True)
    command = recording_command(["pyspark-shell"], str(tmp_path), record="/recorded/classes")
    assert command[1] == "-XX:DumpLoadedClassList=/recorded/classes"
    assert not set(command) & set(ARCHIVE_OPTIONS)
    assert "org.apache.spark.deploy.SparkSubmit" in command
