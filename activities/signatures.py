"""Verifies Ed25519 signatures. Pure computation, so that workflows may use it; needs the extra `encryption`."""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress

with suppress(ModuleNotFoundError):  # without it no cloudlet can have a key; a sandbox cannot import it later
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

NO_PROOF_MESSAGE = "it does not prove that it is from the CRM: it has no proof, and the cloudlet has a token"
WRONG_PROOF_MESSAGE = "its proof does not fit: another token, another object, or a message that was changed"


def why_unproven(key: str, text: str, proof: str) -> str:
    """Returns why the text's proof is not accepted; empty if it is, or if there is no key."""
    if not key:
        return ""
    if not proof:
        return NO_PROOF_MESSAGE
    return "" if is_signed_by(key, text, proof) else WRONG_PROOF_MESSAGE


def is_signed_by(key: str, text: str, proof: str) -> bool:
    """Tells whether the owner of this public key has signed the text; False for a malformed key or proof."""
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
        public.verify(base64.b64decode(proof, validate=True), text.encode("utf-8", "surrogatepass"))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True
