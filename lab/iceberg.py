"""Iceberg on this machine: the REST catalog of Iceberg's own project, and DuckDB's reader.

The catalog is `RESTCatalogServer`, against which that project tests clients of its REST interface:
the project's Java library behind its own HTTP server. It looks at no login.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

from lab.errors import LabError
from lab.java import start_java
from lab.network import answers, free_port
from lab.object_stores import FILES, ObjectStore, python_packages
from lab.packages import maven_artifact
from lab.process import Process, wait_until

_SERVER = "org.apache.iceberg:iceberg-open-api:1.10.1"
_START_TIMEOUT_SECONDS = 120
_EXTENSIONS = ("avro", "httpfs", "iceberg")


class RestCatalog:
    """Serves while it is entered; what it knows is in an SQLite file in `directory`.

    It writes the metadata of tables itself, so for tables in a bucket it needs the `bucket`'s
    address and login; without one they are on the disk. `host` is the address by which it is
    called; its port is open on every interface, for the server has no setting for that.
    """

    def __init__(
        self, directory: Path, *, bucket: ObjectStore | None = None, host: str = "127.0.0.1"
    ) -> None:
        self._directory = directory
        self._host = host
        self._environment = {} if bucket is None else _to_reach(bucket)
        self._port = free_port()
        self.process = self._start()

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://{self._host}:{self._port}"

    def __enter__(self) -> Self:
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def restart(self) -> None:
        """Start it again, after `process.kill`; it knows what it knew."""
        self.process = self._start()
        self._wait()

    def _start(self) -> Process:
        settings = {
            "CATALOG_REST_PORT": str(self._port),
            "CATALOG_URI": f"jdbc:sqlite:{self._directory}/catalog.db",
            "CATALOG_CLIENTS": "1",  # of SQLite, which refuses who comes while another commits
            "CATALOG_WAREHOUSE": f"{self._directory}/warehouse",
        }
        return start_java(
            "iceberg-rest",
            "org.apache.iceberg.rest.RESTCatalogServer",
            arguments=(),
            options=("-Xmx384m",),
            jars=maven_artifact("iceberg-rest", _SERVER),
            directory=self._directory,
            environment={**settings, **self._environment},
        )

    def _wait(self) -> None:
        wait_until(
            lambda: answers(f"{self.uri}/v1/config"),
            "the Iceberg catalog to answer",
            timeout_seconds=_START_TIMEOUT_SECONDS,
            processes=[self.process],
        )


def _to_reach(bucket: ObjectStore) -> Mapping[str, str]:
    login = bucket.environment
    return {
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": bucket.endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "AWS_REGION": login["AWS_DEFAULT_REGION"],
        **{name: value for name, value in login.items() if name != "AWS_ENDPOINT_URL"},
    }


class DuckDb:
    """A DuckDB in a process of its own, with its reader of Iceberg and nothing of ours."""

    def __init__(self, statements: IO[str], answers: IO[str]) -> None:
        self._statements, self._answers = statements, answers

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of the answer. Raises LabError with DuckDB's words where there is none."""
        self._statements.write(json.dumps(statement) + "\n")
        self._statements.flush()
        rows, error = json.loads(self._answers.readline() or '[[], "it has ended"]')
        if error:
            raise LabError(f"DuckDB could not answer `{statement}`: {error}")
        return [tuple(row) for row in rows]

    def attach(self, catalog_uri: str, name: str = "lake") -> None:
        """Know the tables of a REST catalog that asks for no login."""
        options = f"type iceberg, endpoint '{catalog_uri}', authorization_type 'none'"
        self.ask(f"attach '' as {name} ({options})")


# DuckDB draws bars of progress on its output, so answers have another one
_ANSWERING = """
import duckdb, json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
connection = duckdb.connect()
connection.sql("set timezone = 'UTC'")
for extension in sys.argv[1:]:
    connection.sql(f"load '{extension}'")
for line in sys.stdin:
    try:
        rows, error = connection.execute(json.loads(line)).fetchall(), ""
    except duckdb.Error as failure:
        rows, error = [], str(failure)
    print(json.dumps([rows, error], default=str), file=answers, flush=True)
"""


@contextmanager
def open_duckdb(environment: Mapping[str, str] | None = None) -> Iterator[DuckDb]:
    """One that answers until the block ends; `environment` is added to this process's own."""
    packages, extensions = _duckdb_packages()
    with subprocess.Popen(
        [sys.executable, "-c", _ANSWERING, *map(str, extensions)],
        env={**os.environ, **(environment or {}), "PYTHONPATH": str(packages)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise LabError("DuckDB cannot be asked: its process has no pipes.")
        yield DuckDb(process.stdin, process.stdout)  # and it ends when its input does


def _duckdb_packages() -> tuple[Path, Sequence[Path]]:
    packages = python_packages("duckdb-iceberg", FILES / "duckdb.txt")
    return packages, [next(packages.rglob(f"{name}.duckdb_extension")) for name in _EXTENSIONS]
