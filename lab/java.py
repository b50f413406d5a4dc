"""Starting a Java program of the lab from a directory of jars, with small heaps.

It knows no program by name.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache as remembered
from pathlib import Path

from lab import cache, process
from lab.process import Process, patience

# Where the classes lie that a Java program of the lab has loaded before, for its next start (the
# JVM's class-data sharing).
#
# A broker starts with 2.1 instead of 3.6 processor seconds, and in half the time. A JVM goes on as
# if there were no archive when it cannot use one: another JVM wrote it, or for other jars.
# `record_archives` of `lab.kafka` writes them, one for each main class. A program without one of
# its own starts as it does everywhere: so do Kafka's tools, whose times are measured as what others
# would wait.


_NAME = "class-archive"
_PROBE_TIMEOUT_SECONDS = 30
# Brokers carry an agent. A JVM with one records nothing unless an option asks for it, and then
# needs the same option at every later start; it notes in its log that this is for tests.
_AGENTS_TOO = ("-XX:+UnlockDiagnosticVMOptions", "-XX:+AllowArchivingWithJavaAgent")


def class_path(jars: Path) -> str:
    """All jars in one fixed order, which `jars/*` would not give.

    An archive serves only the class path it was recorded with.
    """
    return ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))


def entry(jars: Path, *, record: Callable[[Path], None]) -> Path:
    """The directory with the archives for these jars and this machine's `java`.

    As `cache.entry`, with `record` as its build.
    """
    return cache.entry(_NAME, _key_parts(jars), build=record)


def find(main_class: str, jars: Path) -> Path | None:
    """The archive of this program for these jars and this machine's `java`; None without one."""
    directory = cache.find(_NAME, _key_parts(jars))
    archive = directory and place(main_class, directory)
    return archive if archive and archive.exists() else None


def sharing_options(main_class: str, jars: Path) -> list[str]:
    """The JVM's options for a start from the archive; none where there is no archive."""
    archive = find(main_class, jars)
    return [*_AGENTS_TOO, f"-XX:SharedArchiveFile={archive}"] if archive else []


def recording_options(main_class: str, directory: Path) -> list[str]:
    """The JVM's options to write all classes loaded until its orderly end into `directory`."""
    return [*_AGENTS_TOO, f"-XX:ArchiveClassesAtExit={place(main_class, directory)}"]


def place(main_class: str, directory: Path) -> Path:
    """Where `directory` holds the archive of this program."""
    return directory / f"{main_class}.jsa"


def _key_parts(jars: Path) -> Iterator[str]:
    """What a JVM compares before it uses an archive.

    That is itself, these options, and the path, size and time of every jar.
    """
    java = shutil.which("java")
    yield from (_version(java) if java else "", *_AGENTS_TOO)
    for jar in sorted(jars.glob("*.jar")):
        stat = jar.stat()
        yield f"{jar} {stat.st_size} {stat.st_mtime_ns}"


@remembered
def _version(java: str) -> str:
    """What this `java` says about itself, in all its lines; empty when it says nothing.

    An error is reported later, by the code that starts a program.
    """
    try:
        said = subprocess.run(
            [java, "-version"],
            check=False,
            capture_output=True,
            text=True,
            timeout=patience(_PROBE_TIMEOUT_SECONDS),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout + said.stderr


# One small JVM among five on a laptop: serial collector, no second compiler.
SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

_LOG4J = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p %c %m%n
"""
_LOG4J2 = """\
rootLogger.level=info
rootLogger.appenderRef.stdout.ref=stdout
appender.stdout.type=Console
appender.stdout.name=stdout
appender.stdout.layout.type=PatternLayout
appender.stdout.layout.pattern=%d{ISO8601} %p %c %m%n
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
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Run `main_class` with its working files in `directory`.

    log4j, whether 1 or 2, and the JVM write to one log there, `<name>.log`. It starts from its
    class archive where one was recorded.
    """
    directory.mkdir(parents=True, exist_ok=True)
    log4j, log4j2 = directory / "log4j.properties", directory / "log4j2.properties"
    log4j.write_text(_LOG4J)
    log4j2.write_text(_LOG4J2)
    jvm = [
        *SMALL_JVM,
        *sharing_options(main_class, jars),
        *options,
        f"-Dlog4j.configuration=file:{log4j}",
        f"-Dlog4j2.configurationFile=file:{log4j2}",
    ]
    argv = ["java", *jvm, "-cp", class_path(jars), main_class, *arguments]
    return process.start(
        name,
        argv,
        log_path=directory / f"{name}.log",
        working_directory=directory,
        namespace=namespace,
        environment=environment,
    )


def properties(settings: Mapping[str, str]) -> str:
    """The text of a Java properties file; values hold no line ends."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())
