"""A proxy on loopback between a client and a real server, whose answers a test delays or drops."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

_PIECE_BYTES = 65536


class Proxy:
    """Pass bytes on to (host, port) and back, each connection by itself, on `port` of loopback."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def lets_answer_pass(self) -> bool:
        """Called before each piece of an answer is passed on; False drops it and hangs up."""
        return True

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                outer = socket.create_connection(self._target)
                threading.Thread(target=self._pump, args=(inner, outer, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(outer, inner, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if is_answer and not self.lets_answer_pass():
                    break
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
