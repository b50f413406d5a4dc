"""One row of the table of bad input."""

from dataclasses import dataclass

from tests.unit.resources.documents import Document

A_RATE = "must be a whole number of bytes per second from 1024 to 9007199254740991, such as 52428800, 50Mi or 1250M"


@dataclass(frozen=True)
class BadInput:
    """One wrong object. `field` is the path that must be named; `server_says` defaults to `says`."""

    name: str
    document: Document
    field: str
    says: str
    server_says: str = ""

    @property
    def server_words(self) -> str:
        return self.server_says or self.says
