"""Tables of another version are never misread, changed or cleaned up."""

import json
from collections.abc import Callable

import pytest

from tests.goldens.golden import numbers
from tests.unit.rollup.tables.bucket import Bucket, store_in
from tests.unit.rollup.tables.usage import DAY, put_hours
from tidegate.rollup.schemas import DAY_MS
from tidegate.rollup.tables.format import NOBODY, VERSION, OtherVersion, UsageDamaged
from tidegate.rollup.tables.upkeep import GRACE_MS, sweep

NOW = DAY + DAY_MS


@pytest.fixture
def bucket() -> Bucket:
    """Two hours."""
    bucket = Bucket()
    put_hours(store_in(bucket), "a", hours=[0, 1], now_ms=NOW)
    return bucket


def put_version(bucket: Bucket, version: int) -> None:
    """Make every manifest one of `version`."""
    for path, (content, at_ms) in bucket.objects.items():
        if path.endswith(".json"):
            bucket.objects[path] = (
                json.dumps(json.loads(content) | {"schemaVersion": version}).encode(),
                at_ms,
            )


@pytest.mark.parametrize("action", ["read", "sweep", "run"])
@pytest.mark.parametrize("version", [1, 3])
def test_another_version_is_never_read_changed_or_cleaned_up(
    bucket: Bucket, action: str, version: int
) -> None:
    put_version(bucket, version)
    objects, store = dict(bucket.objects), store_in(bucket)
    actions = {
        "read": lambda: store.rows("usage_5m"),
        "sweep": lambda: sweep(store, now_ms=NOW + 9 * GRACE_MS),
        "run": lambda: store.require_writable(NOBODY),
    }
    with pytest.raises(OtherVersion) as refused:
        actions[action]()
    assert version in numbers(str(refused.value))
    assert bucket.objects == objects


@pytest.mark.parametrize("version", [1, 3])
def test_another_version_reads_like_this(
    bucket: Bucket, version: int, golden: Callable[[str], None]
) -> None:
    put_version(bucket, version)
    with pytest.raises(OtherVersion) as refused:
        store_in(bucket).rows("usage_5m")
    golden(str(refused.value))


def test_a_run_may_write_where_there_is_nothing_and_where_everything_is_of_its_version(
    bucket: Bucket,
) -> None:
    store_in(Bucket()).require_writable(NOBODY)
    store_in(bucket).require_writable(NOBODY)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"schemaVersion": 2}', b'{"schemaVersion": "x"}', b"[]"]
)
def test_a_manifest_that_is_none_is_reported_with_its_name(bucket: Bucket, content: bytes) -> None:
    store = store_in(bucket)
    store.storage.write("_manifests/usage_1d/2026-11-21.json", content)
    with pytest.raises(UsageDamaged) as refused:
        store.rows("usage_1d")
    assert "_manifests/usage_1d/2026-11-21.json" in str(refused.value)


def test_the_version_that_is_written_is_the_second() -> None:
    assert VERSION == 2


def test_a_manifest_that_is_none_reads_like_this(
    bucket: Bucket, golden: Callable[[str], None]
) -> None:
    store = store_in(bucket)
    store.storage.write("_manifests/usage_1d/2026-11-21.json", b"{}")
    with pytest.raises(UsageDamaged) as refused:
        store.rows("usage_1d")
    golden(str(refused.value))
