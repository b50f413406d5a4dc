"""A refused certificate is explained by what is wrong with it, no matter who showed it."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest

from tidegate.errors import refused_certificate

REFUSALS = {
    62: "Hostname mismatch, certificate is not valid for 'zk-1.kafka'.",
    64: "IP address mismatch, certificate is not valid for '10.0.0.7'.",
    20: "unable to get local issuer certificate",
    18: "self-signed certificate",
    10: "certificate has expired",
    9: "certificate is not yet valid",
    23: "certificate revoked",
}


def refusal(code: int) -> ssl.SSLCertVerificationError:
    """As Python's ssl raises it."""
    error = ssl.SSLCertVerificationError(1, f"[SSL] certificate verify failed: {REFUSALS[code]}")
    error.verify_code, error.verify_message = code, REFUSALS[code]
    return error


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_certificate_reads_like_this(code: int, golden: Callable[[str], None]) -> None:
    golden(refused_certificate(refusal(code)))
