"""One row of the table of bad input."""

from dataclasses import dataclass

import pytest

from tests.unit.resources.documents import Document
from tidegate.errors import InvalidResource
from tidegate.resources import parse_object


@dataclass(frozen=True)
class BadInput:
    """One wrong object. `field` is the path that must be named; `server_says` defaults to the models' words for it."""

    name: str
    document: Document
    field: str
    server_says: str = ""

    def refusal(self) -> InvalidResource:
        """What the models make of it."""
        with pytest.raises(InvalidResource) as refused:
            parse_object(self.document, strict=True)
        return refused.value

    def must(self) -> str:
        """What must hold in the field, in the models' words."""
        return next(must for field, must in self.refusal().problems if field == self.field)

    @property
    def server_words(self) -> str:
        return self.server_says or self.must()
