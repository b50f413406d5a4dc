"""A proxy between a client and a real server, whose answers a test delays or drops."""

import contextlib
import socket
import threading
from typing import Self

_PIECE_BYTES = 65536


class Proxy:
    """Pass bytes on to (host, port) and back, each connection by itself, on `port` of `host`.

    `port` 0 = a free one.
    """

    def __init__(
        self,
        target: tuple[str, int],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._target = target
        self._listener = socket.create_server((host, port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # else the port stays taken while one accepts
        self._listener.close()

    def lets_answer_pass(self) -> bool:
        """Called before each piece of an answer is passed on; False drops it and hangs up."""
        return True

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                outer = socket.create_connection(self._target)
                inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_pump, args=(inner, outer), daemon=True).start()
                threading.Thread(target=self._answers, args=(outer, inner), daemon=True).start()

    def _answers(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (piece := source.recv(_PIECE_BYTES)) and self.lets_answer_pass():
                sink.sendall(piece)
        _hang_up(source, sink)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            sink.sendall(piece)
    _hang_up(source, sink)


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
