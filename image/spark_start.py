#!/usr/bin/python3
"""Starts Java in the rollup image, which has no shell for Spark's scripts.

It is installed as `tidegate-rollup` and as `spark-submit`.

    tidegate-rollup executor     what Spark asks of an executor's Pod, given by SPARK_* variables
    tidegate-rollup ...          anything else is a command of tidegate's
    spark-submit ...             how PySpark starts a driver's Java machine, without Spark's script
    rm -rf ...                   how Spark removes its scratch files

Both Java machines get the jars in one fixed order, because the archive of classes serves only the
class path that it was recorded with. That path is relative, so that it could be recorded where the
image was built; so Java starts in `/`. Nothing but the standard library is imported: an executor
needs no command line of ours.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from glob import glob
from itertools import pairwise

JAVA_HOME = "usr/lib/jvm/java-17"
SPARK_HOME = "usr/local/lib/python3.11/dist-packages/pyspark"
ARCHIVE = "usr/lib/tidegate/spark.jsa"
DRIVER, EXECUTOR = (
    "org.apache.spark.deploy.SparkSubmit",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
)
# A Java machine that cannot use the archive goes on without a word.
ARCHIVE_OPTIONS = (
    f"-XX:SharedArchiveFile={ARCHIVE}",
    "-Xshare:auto",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)
_ROOT = "/"
_NAMES_LIBRARY = "usr/lib/*/libnss_wrapper.so"
_MEMORY = "1g"  # Spark's own default
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
# What Spark's launcher would put before everybody's own options, but for a module that only machine
# learning uses.
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
LEFT_OUT_MODULE = "--add-modules=jdk.incubator.vector"
_EXECUTOR_FLAGS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def driver_command(arguments: Sequence[str], root: str = _ROOT) -> list[str]:
    """The driver's Java machine for the arguments of `spark-submit`, to be started in `root`."""
    settings = dict(
        pair.partition("=")[::2] for flag, pair in pairwise(arguments) if flag == "--conf"
    )
    own = shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
    further = settings.get("spark.driver.extraClassPath", "")
    memory = settings.get("spark.driver.memory") or _MEMORY
    return [*_java(root, further), f"-Xmx{memory}", *MODULE_OPTIONS, *own, DRIVER, *arguments]


def executor_command(environment: Mapping[str, str], root: str = _ROOT) -> list[str]:
    """The executor's Java machine as Spark's entry point would start it, started in `root`.

    Raises KeyError for a missing variable.
    """
    numbered = sorted(
        (int(name.rpartition("_")[2]), option)
        for name, option in environment.items()
        if name.startswith("SPARK_JAVA_OPT_")
    )
    options = [option for _, option in numbered if option != LEFT_OUT_MODULE]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    further = environment.get("SPARK_CLASSPATH", "")
    flags = [word for flag, name in _EXECUTOR_FLAGS.items() for word in (flag, environment[name])]
    return [*_java(root, further), *options, f"-Xms{memory}", f"-Xmx{memory}", EXECUTOR, *flags]


def class_path(root: str = _ROOT) -> str:
    """All of Spark's jars in one order, as seen from `root`."""
    names = sorted(
        name for name in os.listdir(os.path.join(root, SPARK_HOME, "jars")) if name.endswith(".jar")
    )
    return ":".join(f"{SPARK_HOME}/jars/{name}" for name in names)


def _java(root: str, further_class_path: str) -> list[str]:
    """Java, the archive, and where classes lie.

    What others add comes last: the archive serves what begins as it was recorded.
    """
    path = ":".join(
        part
        for part in (class_path(root), further_class_path, os.environ.get("SPARK_CONF_DIR"))
        if part
    )
    return [f"{JAVA_HOME}/bin/java", *ARCHIVE_OPTIONS, "-cp", path]


def main() -> int:
    """Become what was asked for."""
    program, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
    if program == "rm":
        return _remove(arguments)
    if program == "spark-submit":
        _become(driver_command(arguments))
    if arguments == ["executor"]:
        try:
            _become(executor_command(os.environ))
        except KeyError as missing:
            sys.exit(
                f"Spark gives an executor {missing} in its environment, and this one has not got "
                f"it. Only Spark starts executors."
            )
    from tidegate.cli import main as tidegate

    return tidegate()


def _remove(arguments: Sequence[str]) -> int:
    for path in (word for word in arguments if not word.startswith("-")):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            os.unlink(path)
    return 0


def name_of_user(environment: Mapping[str, str], root: str = _ROOT) -> dict[str, str]:
    """Environment that gives this process' user id a name, empty where the system has one.

    Hadoop does not start for a user without a name, and a platform may choose any id (OpenShift
    does). The name is in a passwd file of its own, which a preloaded library shows to Java.
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        pass
    else:
        return {}
    libraries = glob(os.path.join(root, _NAMES_LIBRARY))
    if not libraries:
        return {}
    passwd = os.path.join(tempfile.mkdtemp(prefix="tidegate-"), "passwd")
    with open(passwd, "w") as file:
        file.write(f"tidegate:x:{os.getuid()}:{os.getgid()}:Tidegate:/tmp:/usr/sbin/nologin\n")
    others = environment.get("LD_PRELOAD")
    return {
        "LD_PRELOAD": f"{libraries[0]}:{others}" if others else libraries[0],
        "NSS_WRAPPER_PASSWD": passwd,
        "NSS_WRAPPER_GROUP": "/etc/group",
    }


def _become(command: list[str]) -> None:
    named = name_of_user(os.environ)
    os.chdir(_ROOT)
    # Workers must agree on the hashes of strings, and Spark's script says so, too.
    os.execve(command[0], command, os.environ | {"PYTHONHASHSEED": "0"} | named)  # noqa: S606 - Java is all that it becomes


if __name__ == "__main__":
    sys.exit(main())
