"""The key that signs ServiceAccount tokens in the lab, made with the standard library alone.

An EC private key file (RFC 5915) may leave out the public half, and Kubernetes computes that from the private one; so a random number
in the right wrapping is a whole key, and no openssl has to be on the machine. For the lab only.
"""

from __future__ import annotations

import base64
import secrets

_VERSION_1 = bytes.fromhex("020101")
_OCTETS_32 = bytes.fromhex("0420")
_CURVE_P256 = bytes.fromhex("a00a06082a8648ce3d030107")


def service_account_key() -> str:
    """A fresh P-256 private key in PEM."""
    # The order of P-256 lies just below 2^256: a number of 255 bits, not 0, is always a valid key.
    scalar = (1 + secrets.randbelow(2**255 - 1)).to_bytes(32, "big")
    body = _VERSION_1 + _OCTETS_32 + scalar + _CURVE_P256
    der = b"\x30" + bytes([len(body)]) + body
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.encodebytes(der).decode()}-----END EC PRIVATE KEY-----\n"
