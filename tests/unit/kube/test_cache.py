"""The content of the cache when watch and list disagree."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.doubles.kubernetes import InMemoryKubernetes
from tidegate.kube.api import BUSINESS_TIERS, JsonObject
from tidegate.kube.cache import Change, ResourceCache, relist


def tier(name: str, version: str = "1", **changed: object) -> JsonObject:
    metadata = {
        "namespace": "streaming",
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": version,
        "managedFields": [{"manager": "kubectl"}],
    }
    return {"metadata": metadata, "spec": {"level": "L0"}, **changed}


class Watched:
    """A cache that counts how often it woke its reader."""

    def __init__(self) -> None:
        self.wakes = 0
        self.changes: list[Change] = []
        self.now = 100.0
        self.forgotten: list[str] = []
        self.cache = ResourceCache(
            self._note, forget=self.forgotten.append, monotonic=lambda: self.now
        )

    def _note(self, changes: Sequence[Change]) -> None:
        self.wakes += 1
        self.changes += changes

    def list(self, *items: JsonObject) -> None:
        self.cache.replace_all(self.cache.begin_list(BUSINESS_TIERS), items)

    def put(self, obj: JsonObject) -> None:
        self.cache.put(BUSINESS_TIERS, obj)

    def names(self) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.cache.snapshot(BUSINESS_TIERS)]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_watch_events_alone_never_make_it_complete(watched: Watched) -> None:
    watched.put(tier("a"))
    assert (watched.names(), watched.cache.list_age_seconds(BUSINESS_TIERS)) == (["a"], None)


def test_the_age_of_a_list_counts_from_when_it_was_asked_for(watched: Watched) -> None:
    start = watched.cache.begin_list(BUSINESS_TIERS)
    watched.now += 7
    watched.cache.replace_all(start, [])
    assert watched.cache.list_age_seconds(BUSINESS_TIERS) == 7


def test_a_list_drops_what_it_does_not_name_even_without_a_watch_event(watched: Watched) -> None:
    watched.put(tier("ghost"))
    watched.list(tier("a"))
    assert watched.names() == ["a"]


def test_a_watch_event_during_a_list_wins_over_the_list(watched: Watched) -> None:
    watched.list(tier("changed"), tier("deleted"))
    start = watched.cache.begin_list(BUSINESS_TIERS)
    watched.put(tier("changed", "9", spec={"level": "L3"}))
    watched.put(tier("created", "8"))
    watched.cache.remove(BUSINESS_TIERS, "uid-deleted")
    watched.cache.replace_all(start, [tier("changed"), tier("deleted")])
    assert [
        (obj["metadata"]["name"], obj["spec"]["level"])
        for obj in watched.cache.snapshot(BUSINESS_TIERS)
    ] == [
        ("changed", "L3"),
        ("created", "L0"),
    ]


def test_a_later_list_wins_over_an_earlier_watch_event(watched: Watched) -> None:
    watched.put(tier("a", "9", spec={"level": "L3"}))
    watched.list(tier("a", "2"))
    assert watched.cache.snapshot(BUSINESS_TIERS)[0]["spec"] == {"level": "L0"}


def test_a_deleted_uid_never_comes_back(watched: Watched) -> None:
    watched.put(tier("a"))
    watched.cache.remove(BUSINESS_TIERS, "uid-a")
    watched.put(tier("a", "0"))
    watched.list(tier("a"))
    assert watched.names() == []


def test_a_watch_that_lags_behind_our_write_brings_no_older_spec_back(watched: Watched) -> None:
    def generation(number: int, level: str) -> JsonObject:
        obj = tier("gold", version=str(number), spec={"level": level})
        obj["metadata"]["generation"] = number
        return obj

    watched.put(generation(3, "L2"))
    wakes = watched.wakes
    watched.put(generation(2, "L1"))
    assert (
        [obj["spec"]["level"] for obj in watched.cache.snapshot(BUSINESS_TIERS)],
        watched.wakes,
    ) == (["L2"], wakes)


def test_an_object_that_is_gone_by_watch_or_by_list_is_forgotten(watched: Watched) -> None:
    watched.list(tier("a"), tier("b"), tier("c"))
    watched.cache.remove(BUSINESS_TIERS, "uid-a")
    watched.list(tier("c"))
    assert watched.forgotten == ["uid-a", "uid-b"]


@pytest.mark.parametrize(
    ("after", "wakes"),
    [
        (tier("a", "1", spec={"level": "L9"}), 0),
        (tier("a", "2", status={"conditions": []}), 0),
        (tier("a", "2", spec={"level": "L1"}), 1),
        (tier("b", "2"), 1),
    ],
    ids=["same-version", "status-only", "spec", "another-object"],
)
def test_only_what_a_decision_could_depend_on_wakes(
    watched: Watched, after: JsonObject, wakes: int
) -> None:
    watched.list(tier("a"))
    watched.wakes = 0
    watched.put(after)
    assert watched.wakes == wakes


def test_a_finalizer_does_not_wake_and_is_cached(watched: Watched) -> None:
    watched.list(tier("a"))
    watched.wakes = 0
    marked = tier("a", "2")
    marked["metadata"]["finalizers"] = ["tidegate.io/restore"]
    watched.put(marked)
    assert watched.wakes == 0
    assert watched.cache.snapshot(BUSINESS_TIERS)[0]["metadata"]["finalizers"] == [
        "tidegate.io/restore"
    ]


def test_a_list_without_a_change_does_not_wake(watched: Watched) -> None:
    watched.list(tier("a"))
    watched.wakes = 0
    watched.list(tier("a", "5"))
    assert watched.wakes == 0


@pytest.mark.parametrize(
    ("before", "after", "wakes"),
    [
        ({}, {"annotations": {"tidegate.io/paused": "true"}}, 1),
        ({"annotations": {"tidegate.io/paused": "true"}}, {}, 1),
        ({}, {"annotations": {"example.com/seen-at": "12:00"}}, 0),
        ({"labels": {"team": "a"}}, {"labels": {"team": "b"}}, 0),
        ({}, {"ownerReferences": [{"uid": "1"}]}, 0),
        ({}, {"generation": 2}, 1),
        ({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, 1),
        ({"finalizers": ["tidegate.io/restore"]}, {}, 1),
        ({"finalizers": ["example.com/keep"]}, {}, 0),
    ],
    ids=["pause", "go-on", "others-annotation", "label", "owner", "generation", "deletion",
         "our-finalizer-gone", "others-finalizer-gone"],
)  # fmt: skip
def test_of_the_metadata_only_what_means_something_here_wakes(
    watched: Watched, before: JsonObject, after: JsonObject, wakes: int
) -> None:
    def tier_with(version: str, metadata: JsonObject) -> JsonObject:
        obj = tier("a", version)
        return {**obj, "metadata": {**obj["metadata"], **metadata}}

    watched.list(tier_with("1", before))
    watched.wakes = 0
    watched.put(tier_with("2", after))
    assert watched.wakes == wakes


def test_a_change_has_the_object_as_it_was_and_as_it_is(watched: Watched) -> None:
    def levels(change: Change) -> tuple[str | None, ...]:
        return tuple(
            None if version is None else version["spec"]["level"]
            for version in (change.before, change.after)
        )

    watched.put(tier("a"))
    watched.put(tier("a", "2", spec={"level": "L1"}))
    watched.list(tier("a", "3", spec={"level": "L2"}), tier("b"))
    watched.cache.remove(BUSINESS_TIERS, "uid-a")
    watched.list()
    assert [levels(change) for change in watched.changes] == [
        (None, "L0"), ("L0", "L1"), ("L1", "L2"), (None, "L0"), ("L2", None), ("L0", None),
    ]  # fmt: skip
    assert watched.wakes == 5, "one call for all changes of a list"


def test_a_failed_list_leaves_the_cache_as_it_is(watched: Watched) -> None:
    kubernetes = InMemoryKubernetes()
    kubernetes.create(
        BUSINESS_TIERS, {"metadata": {"name": "a", "namespace": "streaming"}, "spec": {}}
    )
    relist(watched.cache, kubernetes, BUSINESS_TIERS)
    kubernetes.fail_with(TimeoutError())  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        relist(watched.cache, kubernetes, BUSINESS_TIERS)
    assert watched.names() == ["a"]


def test_the_known_status_comes_with_the_spec_that_was_seen(watched: Watched) -> None:
    seen = generation_of(tier("gold"), 1)
    watched.put(seen)
    watched.put(generation_of(tier("gold", "2", spec={"level": "L3"}, status={"throttled": 1}), 2))
    shown = watched.cache.with_known_status(BUSINESS_TIERS, seen)
    assert (shown["spec"], shown["metadata"]["generation"]) == ({"level": "L0"}, 1)
    assert (shown["status"], shown["metadata"]["resourceVersion"]) == ({"throttled": 1}, "2")


def test_of_an_object_that_is_gone_only_what_was_seen_is_known(watched: Watched) -> None:
    seen = tier("gold")
    assert watched.cache.with_known_status(BUSINESS_TIERS, seen) is seen


def generation_of(obj: JsonObject, generation: int) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "generation": generation}}
