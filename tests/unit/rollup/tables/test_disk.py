"""The same promises on a disk, where a write is several steps, and a process that is really
killed.
"""

import errno
import itertools
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.unit.rollup.tables.bucket import Fault, Killed
from tests.unit.rollup.tables.usage import DAY, as_set, put_hours, staged, usage_5m
from tidegate.errors import InvalidResource, Unreachable
from tidegate.resources.rollup import RollupStorage
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables import storage
from tidegate.rollup.tables.publication import Publication, publish
from tidegate.rollup.tables.storage import open_storage
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import GRACE_MS, compact_days, sweep

NOW = DAY + 2 * HOUR_MS
FUTURE = 4_000_000_000_000
OLD, NEW = usage_5m(DAY, seed=1, windows=2), usage_5m(DAY, seed=2, windows=2)


@pytest.fixture
def store(tmp_path: Path) -> UsageStore:
    return UsageStore(open_storage((tmp_path / "usage").as_uri(), parallel=1))


class CutOs:
    """The steps of a write that others can see, or that a disk can refuse; from step `at` on all
    fail.
    """

    def __init__(self, at: int, fault: Fault) -> None:
        self._at, self._fault, self.steps = at, fault, 0
        self.walk, self.O_RDONLY, self.rmdir = os.walk, os.O_RDONLY, os.rmdir

    def __getattr__(self, name: str) -> Any:
        def step(*given: Any) -> Any:
            number, self.steps = self.steps, self.steps + 1
            if number >= self._at:
                raise self._fault()
            return getattr(os, name)(*given)

        return step


@pytest.mark.parametrize(
    "fault",
    [Killed, lambda: OSError(errno.ENOSPC, "No space left on device")],
    ids=["killed", "full"],
)
def test_cut_short_at_any_step_of_a_write_the_window_is_the_old_or_the_new_one(
    store: UsageStore, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """After the last rename the new rows may be there although the run got an error; they are never
    mixed.
    """
    old, new = (publication_of(store, rows) for rows in (OLD, NEW))
    for cut in itertools.count():
        publish(store, old, now_ms=NOW)
        disk = CutOs(cut, fault)
        monkeypatch.setattr(storage, "os", disk)
        with suppress(Killed, Unreachable):
            publish(store, new, now_ms=NOW)
        monkeypatch.setattr(storage, "os", os)
        assert as_set(store.rows("usage_5m")) in (as_set(OLD), as_set(NEW)), cut
        if disk.steps <= cut:
            break
    assert cut == 10  # two writes of five steps each
    assert as_set(store.rows("usage_5m")) == as_set(NEW)
    sweep(store, now_ms=FUTURE)
    assert as_set(store.rows("usage_5m")) == as_set(NEW)
    left = sorted(
        path.suffix for path in Path(store.storage.address("")).rglob("*") if path.is_file()
    )
    assert left == [".json", ".parquet"]


def test_a_file_system_that_cannot_force_folders_to_the_disk_will_do(
    store: UsageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def files_only(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", files_only)
    put_hours(store, "a", hours=[0], now_ms=NOW)
    assert as_set(store.rows("usage_5m")) == as_set(usage_5m(DAY))


def test_only_what_is_published_is_forced_to_the_disk(
    store: UsageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends with the machine's power starts again, and what it staged belongs to no run
    then.
    """
    forced: list[str] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        forced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    publication = publication_of(store, OLD)
    assert not [path for path in forced if path.endswith(".unfinished")]
    publish(store, publication, now_ms=NOW)
    assert (
        len([path for path in forced if path.endswith(".unfinished")]) == 2
    )  # the rows and the manifest


def publication_of(store: UsageStore, rows: pa.Table) -> Publication:
    return Publication(
        table="usage_5m",
        window_start_ms=DAY,
        run_id="a",
        staged=staged(store, "a", "usage_5m", rows),
    )


_ENDLESS = """
import sys
from tests.unit.rollup.tables.usage import DAY, put_hours
from tidegate.rollup.tables.store import UsageStore
store = UsageStore.at(sys.argv[1])
number = 0
while True:
    put_hours(store, f"run-{number}", hours=[0, 1], now_ms=DAY, seed=number % 2)
    print(number, flush=True)
    number += 1
"""


def test_killed_for_good_at_any_moment_every_window_is_whole(tmp_path: Path) -> None:
    checkout = Path(__file__).parents[4]
    around = {**os.environ, "PYTHONPATH": f"{checkout}:{checkout / 'operator'}"}
    store = UsageStore.at(str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(tmp_path)],
        env=around,
        cwd=checkout,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for _ in range(3):  # read while it writes, then after it died
            assert_whole(store)
        child.send_signal(signal.SIGKILL)
    assert_whole(store)
    put_hours(store, "after", hours=[0, 1], now_ms=DAY)
    assert_whole(store)


def assert_whole(store: UsageStore) -> None:
    possible = {
        hour: [as_set(usage_5m(DAY + hour * HOUR_MS, seed=seed)) for seed in (0, 1)]
        for hour in (0, 1)
    }
    for hour, expected in possible.items():
        assert (
            as_set(store.rows("usage_5m", DAY + hour * HOUR_MS, DAY + (hour + 1) * HOUR_MS))
            in expected
        )


@pytest.fixture
def tidy(store: UsageStore) -> UsageStore:
    """One day in one file and hours of the next beside it, and no garbage."""
    put_hours(store, "a", hours=[0, 1], now_ms=NOW)
    put_hours(store, "a", hours=[0], now_ms=NOW, day_ms=DAY + DAY_MS)
    compact_days(store, "usage_5m", before_ms=DAY + DAY_MS, run_id="c", now_ms=NOW)
    sweep(store, now_ms=FUTURE)
    return store


def test_duckdb_reads_the_files_it_is_given(tidy: UsageStore) -> None:
    duckdb = pytest.importorskip("duckdb")
    (found,) = duckdb.sql(
        f"select count(*), sum(bytes), max(window_start)::varchar from "
        f"read_parquet({tidy.files('usage_5m')})"
    ).fetchall()
    rows = tidy.rows("usage_5m")
    assert found[:2] == (rows.num_rows, sum(rows["bytes"].to_pylist()))


def test_duckdb_reads_a_tidy_table_by_pattern(tidy: UsageStore) -> None:
    duckdb, pattern = pytest.importorskip("duckdb"), tidy.storage.address("usage_5m/**/*.parquet")
    assert duckdb.sql(f"select count(*) from '{pattern}'").fetchall() == [
        (tidy.rows("usage_5m").num_rows,)
    ]


def test_pandas_reads_a_tidy_table_as_a_folder(tidy: UsageStore) -> None:
    frame = pytest.importorskip("pandas").read_parquet(
        tidy.storage.address("usage_5m"), partitioning=None
    )
    assert int(frame["bytes"].sum()) == sum(tidy.rows("usage_5m")["bytes"].to_pylist())


def test_a_clean_up_leaves_no_empty_folder(tidy: UsageStore) -> None:
    root = Path(tidy.storage.address(""))
    assert [
        path.name for path in root.rglob("*") if path.is_dir() and not any(path.iterdir())
    ] == []
    assert not (root / "usage_5m" / "dt=2026-11-21" / "hour=00").exists()


def test_the_grace_is_longer_than_a_day_of_runs() -> None:
    assert GRACE_MS >= DAY_MS


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/usage",
        "hdfs://name/usage",
        "",
        "s3://",
        "file:///",
        "abfs://container@account/usage",
        "abfss://container@account.blob.core.windows.net/usage",
    ],
)
def test_an_address_that_names_no_storage_is_refused_with_those_that_do(url: str) -> None:
    with pytest.raises(InvalidResource) as caught:
        open_storage(url)
    assert url.rstrip("/") in caught.value.message
    assert "file:///path, s3://bucket/prefix" in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "s3://usage/shop",
        "gs://usage/shop",
        "abfs://usage@account.dfs.core.windows.net/shop",
        "abfss://usage@account.dfs.core.windows.net/shop",
        "abfs://usage@account/shop",
        "abfss://usage@account.blob.core.windows.net/shop",
        "hdfs://usage/shop",
    ],
)
def test_a_policy_is_admitted_exactly_where_its_jobs_can_open_the_storage(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # or Amazon is asked

    def takes(opener: Callable[..., object], error: type[Exception], **named: str) -> bool:
        try:
            opener(**named)
        except error:
            return False
        return True

    opens = takes(open_storage, InvalidResource, url=url)
    assert takes(RollupStorage, ValueError, url=url) == opens
    assert opens == (".blob." not in url and not url.startswith(("hdfs", "abfs://usage@account/")))


@pytest.mark.parametrize("url", ["ftp://host/usage", ""])
def test_an_address_that_names_no_storage_reads_like_this(
    url: str, golden: Callable[[str], None]
) -> None:
    with pytest.raises(InvalidResource) as caught:
        open_storage(url)
    golden(caught.value.message)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "s3://key:secret@bucket/usage?region=eu-west-1&endpoint_override=127.0.0.1:9",
            "s3://bucket/usage",
        ),
        ("gs://anonymous@bucket/usage", "gs://bucket/usage"),
        ("file:///var/lib/usage/", "file:///var/lib/usage"),
        (
            "abfs://usage@account.dfs.core.windows.net/shop/",
            "abfs://usage@account.dfs.core.windows.net/shop",
        ),
        (
            "abfss://usage@account.dfs.core.windows.net/shop/",
            "abfss://usage@account.dfs.core.windows.net/shop",
        ),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert open_storage(url).shown == shown


def test_a_bucket_that_does_not_say_where_it_is_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Away:
        @staticmethod
        def from_uri(url: str) -> None:
            raise OSError("When resolving region for bucket 'usage': AWS Error NETWORK_CONNECTION")

    monkeypatch.setattr(storage, "FileSystem", Away)
    with pytest.raises(Unreachable) as caught:
        open_storage("s3://usage/shop")
    assert caught.value.message.startswith("s3://usage/shop was not found, or did not answer.")


def test_a_refused_address_keeps_its_secret() -> None:
    with pytest.raises(InvalidResource) as caught:
        open_storage("ftp://key:hunter2@host/usage?token=hunter3")
    assert "hunter" not in caught.value.message


def test_a_file_system_that_writes_no_more_is_reported_in_words(
    tmp_path: Path, golden: Callable[[str], None]
) -> None:
    (tmp_path / "usage").write_text("in the way")
    with pytest.raises(Unreachable) as refused:
        put_hours(UsageStore.at(str(tmp_path / "usage")), "a", hours=[0], now_ms=NOW)
    golden(
        re.sub(
            r"_staging/\S+|\[.*?\]|'.*?'",
            "...",
            refused.value.message.replace(str(tmp_path), "FOLDER"),
        )
    )


def test_a_bucket_is_asked_at_the_endpoint_and_with_the_login_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        for name, value in {
            "ACCESS_KEY_ID": "ours",
            "SECRET_ACCESS_KEY": "hidden",
            "DEFAULT_REGION": "eu-lab-1",
            "ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
        }.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        found = open_storage("s3://usage/shop").read("a")
        server.shutdown()
    assert found is None
    ((path, login),) = set(asked)
    assert path == "/usage/shop/a"
    assert "Credential=ours/" in login
    assert "/eu-lab-1/s3/" in login
    assert "hidden" not in login


class _Bucket(BaseHTTPRequestHandler):
    """Has nothing; `asked` are the hosts that it was asked by."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.asked.append(self.headers["Host"].partition(":")[0])
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD  # noqa: N815 - the library's name for it

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(("path_style", "host"), [(True, "localhost"), (False, "usage.localhost")])
def test_a_bucket_is_in_the_path_or_in_the_host_of_its_endpoint(
    path_style: bool, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tidegate")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Bucket)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        given = RollupStorage.model_validate(
            {
                "url": "s3://usage/tables",
                "endpoint": f"http://localhost:{server.server_address[1]}",
                "region": "us-east-1",
                "pathStyle": path_style,
            }
        )
        _Bucket.asked.clear()
        assert open_storage(given.address).read("any") is None
        assert set(_Bucket.asked) == {host}
        assert open_storage(given.address).shown == "s3://usage/tables"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
