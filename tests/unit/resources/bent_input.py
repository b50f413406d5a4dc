"""Sound objects, bent in a few random places with values that have been troublesome somewhere.

An object that the models accept, an API server with the CRDs accepts too: both come from one
declaration.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.unit.resources.documents import ABSENT, Document, budget, override, policy, queue, tier
from tidegate.errors import InvalidResource
from tidegate.resources import parse_object

# How a test draws them: the same ones each time.
OFTEN = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
RATES = st.one_of(
    st.integers(-1, 2**54),
    st.builds(
        lambda number, suffix: f"{number}{suffix}",
        st.one_of(st.integers(0, 2000), st.integers(0, 10**17)),
        st.sampled_from(["", "k", "K", "M", "Mi", "Gi", "T", "Ti", "m", "Pi", "MB", "/s"]),
    ),
)
TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            ".",
            "..",
            "*",
            "<default>",
            "a b",
            "a\nb",
            "A",
            "x" * 64,
            "x" * 250,
            "x" * 257,
            "kafka:9092",
            "a:1,b:2",
            "http://a/b",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
MOMENTS = st.builds(
    "{}-{}-{}{}{}:00:0{}{}".format,
    st.sampled_from(["2026", "2028", "1999", "3000", "26"]),
    st.sampled_from(["02", "11", "00", "13"]),
    st.sampled_from(["28", "29", "31", "00"]),
    st.sampled_from(["T", "t", " ", ""]),
    st.sampled_from(["00", "23", "24", "7"]),
    st.sampled_from(["0", "0.5", "0.", "0,5"]),
    st.sampled_from(["Z", "z", "+02:00", "-23:59", "+24:00", "+0200", ""]),
)
VALUES = st.one_of(
    st.just(ABSENT),
    RATES,
    TEXTS,
    st.integers(-2, 1001),
    st.just(2**40),
    st.booleans(),
    st.just(1.5),
    st.just([]),
    st.just({}),
    st.none(),
)


def paths(value: object, path: str = "") -> Iterator[str]:
    """Every field of a spec as a dotted path, containers before what is in them.

    Keys of maps that have dots themselves are no fields.
    """
    items: Any = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, below in items:
        if "." in str(name):
            continue
        yield f"{path}{name}"
        yield from paths(below, f"{path}{name}.")


def bent(build: Any) -> st.SearchStrategy[Document]:
    changes = st.dictionaries(
        st.sampled_from(sorted(paths(build()["spec"]))), VALUES, min_size=1, max_size=2
    )
    return changes.filter(_apart).map(build)


def overrides() -> st.SearchStrategy[Document]:
    """Overrides bent like the other kinds, and overrides that end at a strange moment."""
    return st.one_of(bent(override), MOMENTS.map(lambda moment: override({"expiresAt": moment})))


def _apart(changes: Mapping[str, object]) -> bool:
    """Whether no change lies inside another, and no list item is left out (that would be another
    list, not a wrong item).
    """
    inside = any(
        one != other and one.startswith(f"{other}.") for one in changes for other in changes
    )
    return not inside and not any(
        path.rpartition(".")[2].isdigit() and value is ABSENT for path, value in changes.items()
    )


def bent_objects() -> st.SearchStrategy[Document]:
    """Objects of each kind, sound or not."""
    return st.one_of(bent(policy), bent(tier), overrides(), bent(queue), bent(budget))


def refusal_of_model(document: Document) -> str | None:
    try:
        parse_object(document, strict=True)
    except InvalidResource as refused:
        return refused.message
    return None
