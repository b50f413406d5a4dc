"""Starting a Java program of the lab from a directory of jars, with small heaps. It knows no program by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import class_archive, process
from lab.process import Process

# One small JVM among five on a laptop: serial collector, no second compiler.
SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

_LOG4J = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p %c %m%n
"""


def start_java(
    name: str,
    main_class: str,
    *,
    arguments: Sequence[str],
    options: Sequence[str],
    jars: Path,
    directory: Path,
    namespace: str | None = None,
) -> Process:
    """Run `main_class` with its working files in `directory`; log4j and the JVM write to one log there, `<name>.log`.

    It starts from its class archive where one was recorded.
    """
    directory.mkdir(parents=True, exist_ok=True)
    log4j = directory / "log4j.properties"
    log4j.write_text(_LOG4J)
    jvm = [*SMALL_JVM, *class_archive.sharing_options(main_class, jars), *options, f"-Dlog4j.configuration=file:{log4j}"]
    argv = ["java", *jvm, "-cp", class_archive.class_path(jars), main_class, *arguments]
    return process.start(name, argv, log_path=directory / f"{name}.log", working_directory=directory, namespace=namespace)


def properties(settings: Mapping[str, str]) -> str:
    """The text of a Java properties file; values hold no line ends."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())
