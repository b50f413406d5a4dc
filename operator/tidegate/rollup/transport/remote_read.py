"""Both ways of remote read: the chunks as they are stored, streamed, or all samples in one message.

What answers is judged by its kind and its content: some front ends answer any path with a page and status 200.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tidegate.rollup.samples import Asked, Selection
from tidegate.rollup.transport import failures
from tidegate.rollup.transport.chunk_frames import StoredChunks, UnknownEncoding, decoded, read_frames
from tidegate.rollup.transport.exchange import Answer, Question
from tidegate.rollup.transport.remote_read_request import AnswerKind, read_request
from tidegate.rollup.transport.rung import Rung
from tidegate.rollup.transport.sample_messages import Histograms, read_samples
from tidegate.rollup.transport.series import StoredSeries
from tidegate.rollup.transport.snappy_block import unpacked, unpacked_bytes
from tidegate.rollup.transport.wire import Malformed

_PATH = "/api/v1/read"
_TOGETHER_BYTES = 32 * 1024 * 1024  # of answers; from then on decoding them together gains nothing and only keeps memory
_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}

Result = TypeVar("Result")


class _RemoteRead(Rung):
    wanted: AnswerKind
    content_type: str

    def _stored(self, selection: Selection, start_ms: int, *, end_ms: int, until: float) -> StoredSeries:
        return self._ask(Asked(selection, start_ms, end_ms), self._read, until)

    def _ask(self, asked: Asked, read: Callable[[Answer], Result], until: float) -> Result:
        question = Question(_PATH, read_request(*asked, kind=self.wanted), _HEADERS)
        return self._exchange.ask(question, lambda answer: self._checked(answer, read), until=until)

    def _checked(self, answer: Answer, read: Callable[[Answer], Result]) -> Result:
        if answer.kind.partition(";")[0].strip() != self.content_type:
            raise answer.other_content(self.content_type)
        try:
            return read(answer)
        except Malformed as error:
            raise failures.damaged(error, answer.address) from error
        except (UnknownEncoding, Histograms) as error:
            raise failures.no_floats(error, answer.address) from error

    @abstractmethod
    def _read(self, answer: Answer) -> StoredSeries: ...


class RemoteReadChunks(_RemoteRead):
    """Remote read, STREAMED_XOR_CHUNKS: least work for the server, fewest bytes, fastest here."""

    name = "remote-read-chunks"
    wanted = AnswerKind.STREAMED_XOR_CHUNKS
    content_type = "application/x-streamed-protobuf"

    def _stored_all(self, asked: Sequence[Asked]) -> Iterator[StoredSeries]:
        group: list[tuple[Asked, StoredChunks]] = []
        for one in asked:
            group.append((one, self._ask(one, _chunks, self._exchange.deadline())))
            if sum(len(chunks.answer) for _, chunks in group) > _TOGETHER_BYTES:
                yield from self._together(group)
                group = []
        yield from self._together(group)

    def _together(self, group: Sequence[tuple[Asked, StoredChunks]]) -> Sequence[StoredSeries]:
        try:
            return decoded([chunks for _, chunks in group])
        except Malformed:
            # a chunk in a frame whose checksum is right; asked for one by one, its answer gets further attempts, or its error
            return list(super()._stored_all([one for one, _ in group]))

    def _read(self, answer: Answer) -> StoredSeries:
        return decoded([_chunks(answer)])[0]


def _chunks(answer: Answer) -> StoredChunks:
    return read_frames(answer.whole())


class RemoteReadSamples(_RemoteRead):
    """Remote read, SAMPLES: the server holds the whole answer in memory and bounds it (50 million samples by default)."""

    name = "remote-read-samples"
    wanted = AnswerKind.SAMPLES
    content_type = "application/x-protobuf"

    def _read(self, answer: Answer) -> StoredSeries:
        block = answer.whole()
        if unpacked_bytes(block) > answer.limit_bytes:
            raise failures.too_large(answer.limit_bytes, answer.address)
        return read_samples(unpacked(block))
