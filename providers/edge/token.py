"""A CRM's token: an Ed25519 private key in a file. It signs the CRM's messages and never leaves the file.

Whoever can read the file can impersonate the CRM, so only its owner may read it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domain.edge.messages import CrmRequest
from domain.edge.proofs import PROOF_FIELD, decode_key, text_to_sign
from domain.errors import Category, Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class CrmToken:
    """A CRM's token file; read at each use, so that it can be replaced while the CRM runs."""

    def __init__(self, file: Path, required: bool = False) -> None:
        self.file = file
        self._required = required

    def exists(self) -> bool:
        return self._required or self.file.exists()

    def sign_message(self, signal: str, path: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the message with its proof; unchanged if there is no token."""
        if not self.exists():
            return dict(message)
        return {**message, PROOF_FIELD: self.sign_text(text_to_sign(signal, path, message))}

    def sign_text(self, text: str) -> str:
        """Returns the signature of a text."""
        return base64.b64encode(self._load_private_key().sign(text.encode("utf-8", "surrogatepass"))).decode()

    def public_key(self) -> str:
        """Returns the public key."""
        return _encode_public_key(self._load_private_key())

    def create_token(self) -> str:
        """Creates a new token, which replaces the old one. Returns the public key."""
        _check_cryptography_installed()
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        new = Ed25519PrivateKey.generate()
        text = new.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        beside = self.file.with_name(f"{self.file.name}.new")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(text)
            beside.replace(self.file)  # atomic for a CRM that reads it now
        except OSError as error:
            raise self._unusable_token_error(f"cannot be written: {error.strerror}") from error
        return _encode_public_key(new)

    def _load_private_key(self) -> Ed25519PrivateKey:
        _check_cryptography_installed()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            if self.file.stat().st_mode & 0o077:
                raise self._unusable_token_error("can be read by others", f"chmod 600 {self.file}")
            found = load_pem_private_key(self.file.read_bytes(), None)
        except OSError as error:
            raise self._unusable_token_error(f"cannot be read: {error.strerror}") from error
        except (ValueError, TypeError) as error:
            raise self._unusable_token_error("is not a private key") from error
        if not isinstance(found, Ed25519PrivateKey):
            raise self._unusable_token_error("is a key of another kind")
        return found

    def _unusable_token_error(self, why: str, hint: str = "") -> Refused:
        written = hint or "make another one: starter crm token --cloudlet ORG/NAME"
        return Refused(Category.INVALID, f"the token in {self.file} {why}", written)


class ControllerKeys:
    """The public keys of the workers whose orders a CRM carries out, as `starter key new` prints them; none: all."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        if keys:
            _check_cryptography_installed()
        self._keys = [_load_public_key(key) for key in keys]

    def has_signed(self, request: CrmRequest) -> bool:
        """Tells whether one of these workers has signed the order; True if there are no keys."""
        return not self._keys or any(_has_signed(key, request.text_to_sign, request.proof) for key in self._keys)


def _load_public_key(text: str) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        kind, _, encoded = text.partition(":")
        if kind == "ed25519":
            return Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(f"{encoded}="))
    except ValueError:
        pass
    why = f"{text[:80]!a} in RATCHET_CONTROLLER_KEYS is not a public key"
    raise Refused(Category.INVALID, why, "take the line that the identities file has of the workers: ed25519:…")


def _has_signed(key: Ed25519PublicKey, text: str, proof: str) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(decode_key(proof), text.encode("utf-8", "surrogatepass"))
    except InvalidSignature:
        return False
    return True


def _check_cryptography_installed() -> None:
    if not find_spec("cryptography"):
        raise Refused(Category.INVALID, "tokens of CRMs need the extra `encryption`", "install it on this machine")


def _encode_public_key(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()
