"""Values that a pass makes by the thousand: frozen in the eyes of mypy, plain at run time.

A frozen dataclass sets each of its fields by a call, so it takes five times as long to make as a
plain one, and a pass over 5000 entities makes 80,000 of these. mypy refuses every assignment to
them just the same; only a program that it has not read could change one. What is made once a pass,
or comes from outside the core, is an ordinary frozen dataclass.
"""

from typing import TYPE_CHECKING

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, slots: bool):
        """A dataclass hashed and compared like a frozen one, without its guard on assignments."""
        return dataclass(slots=slots, unsafe_hash=frozen)
