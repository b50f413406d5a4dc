"""The login that every watching policy of a scenario sends to Prometheus, and must never tell."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

SECRET = "prometheus"
_USER = "tidegate"


@dataclass(frozen=True)
class Login:
    """A user with a password of its own; the lab's Prometheus takes any."""

    password: str = field(default_factory=lambda: secrets.token_urlsafe(18), repr=False)

    @staticmethod
    def authentication() -> Mapping[str, object]:
        """What a policy declares to log in so."""
        return {
            "type": "basic",
            "username": _USER,
            "passwordSecret": {"secretName": SECRET, "password": "password"},
        }

    def literals(self) -> Mapping[str, str]:
        """The Secret's keys."""
        return {"password": self.password}

    def lines_that_tell(self, text: str) -> list[str]:
        """The lines that hold the password: plain, as a Secret or as an HTTP header has it."""
        header = base64.b64encode(f"{_USER}:{self.password}".encode()).decode()
        stored = base64.b64encode(self.password.encode()).decode()
        return [
            line
            for line in text.splitlines()
            if any(form in line for form in (self.password, header, stored))
        ]
