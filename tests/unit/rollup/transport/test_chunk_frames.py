"""A streamed answer gives every series it holds, or an error: never a part, never a guess."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rollup.transport.chunk_writer import (
    HISTOGRAM,
    bytes_field,
    chunked_series,
    damaged_series,
    frame,
    framed,
    labels_bytes,
    varint_field,
)
from tests.unit.rollup.transport.histories import Samples, bits, samples
from tidegate.rollup.transport.encoding import Malformed
from tidegate.rollup.transport.remote_read import (
    UnknownEncoding,
    decoded,
    read_answers,
    read_frames,
)
from tidegate.rollup.transport.series import StoredSeries

ONE = [(1_700_000_000_000, 1.0), (1_700_000_015_000, 2.0)]
LATER = [(1_700_000_030_000, 3.0)]

labels = st.dictionaries(
    st.text("abcdef_", min_size=1, max_size=5), st.text(max_size=200), min_size=1, max_size=5
)
answers = st.lists(
    st.tuples(labels, st.lists(samples(max_size=5), min_size=1, max_size=3)), max_size=4
)
Answers = list[tuple[dict[str, str], list[Samples]]]


def read(answer: bytes) -> StoredSeries:
    (found,) = decoded([read_frames(answer)])
    return found


def plain(found: StoredSeries) -> tuple[object, ...]:
    return (
        list(found.labels),
        found.counts.tolist(),
        found.times_ms.tolist(),
        found.values.tobytes(),
    )


@settings(max_examples=settings().max_examples // 2)
@given(answers)
def test_series_come_back_with_their_labels_and_samples(series: Answers) -> None:
    found = read(b"".join(frame(chunked_series(names, *chunks)) for names, chunks in series))
    assert list(found.labels) == [names for names, _ in series]
    assert found.counts.tolist() == [sum(map(len, chunks)) for _, chunks in series]
    flat = [sample for _, chunks in series for chunk in chunks for sample in chunk]
    assert found.times_ms.tolist() == [time_ms for time_ms, _ in flat]
    assert found.values.tobytes() == b"".join(bits(value) for _, value in flat)


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(answers, max_size=5))
def test_answers_decoded_together_are_what_each_is_alone(several: list[Answers]) -> None:
    whole = [
        b"".join(frame(chunked_series(names, *chunks)) for names, chunks in series)
        for series in several
    ]
    together = decoded([read_frames(answer) for answer in whole])
    assert [plain(one) for one in together] == [plain(read(answer)) for answer in whole]


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(answers, max_size=5))
def test_answers_of_several_queries_are_what_each_is_alone(several: list[Answers]) -> None:
    parts = [
        b"".join(frame(chunked_series(names, *chunks), query=number) for names, chunks in series)
        for number, series in enumerate(several)
    ]
    found = read_answers(b"".join(parts), len(several))
    assert [plain(one) for one in decoded(found)] == [
        plain(read(part)) for part in parts[: len(found)]
    ]
    assert not any(several[len(found) :])


@pytest.mark.parametrize("queries", [[1, 0], [0, 2, 1], [2], [-1], [1 << 40]])
def test_frames_of_queries_that_were_not_asked_or_go_back_are_refused(queries: list[int]) -> None:
    with pytest.raises(Malformed, match="out of order"):
        read_answers(b"".join(frame(query=number) for number in queries), 2)


texts = st.text("abcdef_", max_size=200)
series_bytes = st.builds(
    lambda names, chunks: chunked_series(names, *chunks),
    st.dictionaries(texts, texts, max_size=4),
    st.lists(samples(max_size=3), max_size=3),
)
edits = st.lists(
    st.tuples(
        st.integers(0, 1 << 16), st.sampled_from(["set", "insert", "cut"]), st.binary(max_size=2)
    ),
    max_size=4,
)


def edited(message: bytes, changes: list[tuple[int, str, bytes]]) -> bytes:
    for place, change, content in changes:
        at = place % (len(message) + 1)
        behind = {"set": at + len(content), "insert": at, "cut": at + 1}[change]
        message = message[:at] + (b"" if change == "cut" else content) + message[behind:]
    return message


@settings(max_examples=settings().max_examples * 4)
@given(st.lists(series_bytes, max_size=2), st.integers(0, 3), edits)
def test_whatever_is_in_a_frame_is_read_or_refused_in_words(
    series: list[bytes], query: int, changes: list[tuple[int, str, bytes]]
) -> None:
    message = b"".join(bytes_field(1, one) for one in series) + varint_field(2, query)
    broken = framed(edited(message, changes))
    for question in (read_frames, lambda answer: read_answers(answer, 3)):
        with contextlib.suppress(Malformed, UnknownEncoding):  # anything else is a traceback
            question(broken)


def test_a_damaged_chunk_in_one_of_several_answers_is_noticed() -> None:
    sound, damaged = frame(chunked_series({"a": "1"}, ONE)), frame(damaged_series({"a": "2"}, ONE))
    for order in ([sound, damaged], [damaged, sound]):
        with pytest.raises(Malformed):
            decoded([read_frames(answer) for answer in order])


def test_an_answer_without_frames_has_no_series() -> None:
    assert list(read(b"").labels) == []


def test_several_series_in_a_frame_and_one_in_several_frames() -> None:
    found = read(
        frame(chunked_series({"a": "1"}, ONE), chunked_series({"a": "2"}, ONE))
        + frame(chunked_series({"a": "2"}, LATER))
    )
    assert [one["a"] for one in found.labels] == ["1", "2", "2"]
    assert found.counts.tolist() == [2, 2, 1]


def test_fields_in_another_order_or_unknown_are_read_all_the_same() -> None:
    whole = chunked_series({"a": "1"}, ONE)
    usual = read(frame(whole))
    label = bytes_field(1, bytes_field(2, b"1") + varint_field(9, 9) + bytes_field(1, b"a"))
    unusual = frame(varint_field(8, 1) + label + whole[len(labels_bytes({"a": "1"})) :])
    assert list(read(unusual).labels) == [{"a": "1"}]
    assert read(unusual).values.tolist() == usual.values.tolist()


def test_a_chunk_of_another_encoding_is_a_clear_error(golden: Callable[[str], None]) -> None:
    with pytest.raises(UnknownEncoding) as refused:
        read_frames(frame(chunked_series({"a": "1"}, ONE, encoding=HISTOGRAM)))
    golden(str(refused.value))


def test_one_wrong_bit_is_noticed_wherever_it_is() -> None:
    whole = frame(chunked_series({"a": "1"}, ONE))
    for at in range(len(whole)):
        with pytest.raises(Malformed):
            read_frames(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])


def test_an_answer_that_broke_off_is_noticed_wherever_it_did() -> None:
    first, second = frame(chunked_series({"a": "1"}, ONE)), frame(chunked_series({"a": "2"}, ONE))
    for length in range(len(first) + 1, len(first + second)):
        with pytest.raises(Malformed):
            read_frames((first + second)[:length])


def test_an_error_in_words_behind_the_frames_is_shown() -> None:
    with pytest.raises(Malformed, match="expanding series: context deadline exceeded"):
        read_frames(
            frame(chunked_series({"a": "1"}, ONE))
            + b"expanding series: context deadline exceeded\n"
        )


def test_a_label_that_is_not_text_is_refused() -> None:
    with pytest.raises(Malformed, match="not a message"):
        read_frames(frame(bytes_field(1, bytes_field(1, b"a") + bytes_field(2, b"\xff"))))
