"""The jars of Kafka, ZooKeeper and the JMX exporter, from Maven's configured repositories. It runs none of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab import cache, process
from lab.progress import say

FILES = Path(__file__).parent / "kafka_files"
JMX_RULES = FILES / "jmx_rules.yml"
_POM = FILES / "pom.xml"
_DOWNLOAD_TIMEOUT_SECONDS = 600


def kafka_jars() -> Path:
    """The directory with all jars; about 60 MB are downloaded when the cache has none for this pom."""
    return cache.entry("kafka-jars", [_POM.read_bytes()], build=_download)


def is_downloaded() -> bool:
    """Whether `kafka_jars` would return at once."""
    return cache.find("kafka-jars", [_POM.read_bytes()]) is not None


def jmx_agent(jars: Path) -> Path:
    """The JMX exporter's java agent among the jars."""
    return next(jars.glob("jmx_prometheus_javaagent-*.jar"))


def _download(content: Path) -> None:
    say("kafka-jars", "downloading Kafka 3.9.2 with Maven, about 60 MB")
    # Maven keeps its notes beside the pom and all it touches in a local repository: both are made here and go with the workshop.
    work = content.parent
    shutil.copy(_POM, work / "pom.xml")
    argv = ["mvn", "-B", "-ntp", "-Dstyle.color=never", f"-Dmaven.repo.local={work / 'repository'}", "-f", str(work / "pom.xml")]
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={content}"]
    with process.start("mvn", [*argv, *goal], log_path=work / "mvn.log") as maven:
        maven.expect_success(_DOWNLOAD_TIMEOUT_SECONDS)
