"""A CRM's token: an Ed25519 private key in a file. It signs the CRM's messages and never leaves the file.

Whoever can read the file can impersonate the CRM, so only its owner may read it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domain.edge.proofs import PROOF, statement
from domain.errors import Category, Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class Token:
    """A CRM's token file; read at each use, so that it can be replaced while the CRM runs."""

    def __init__(self, file: Path, required: bool = False) -> None:
        self.file = file
        self._required = required

    def there(self) -> bool:
        return self._required or self.file.exists()

    def signed(self, signal: str, path: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the message with its proof; unchanged if there is no token."""
        if not self.there():
            return dict(message)
        proof = self._load().sign(statement(signal, path, message).encode("utf-8", "surrogatepass"))
        return {**message, PROOF: base64.b64encode(proof).decode()}

    def key(self) -> str:
        """Returns the public key."""
        return _public(self._load())

    def make(self) -> str:
        """Creates a new token, which replaces the old one. Returns the public key."""
        _installed()
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
            raise self._wrong(f"cannot be written: {error.strerror}") from error
        return _public(new)

    def _load(self) -> Ed25519PrivateKey:
        _installed()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            if self.file.stat().st_mode & 0o077:
                raise self._wrong("can be read by others", f"chmod 600 {self.file}")
            found = load_pem_private_key(self.file.read_bytes(), None)
        except OSError as error:
            raise self._wrong(f"cannot be read: {error.strerror}") from error
        except (ValueError, TypeError) as error:
            raise self._wrong("is not a private key") from error
        if not isinstance(found, Ed25519PrivateKey):
            raise self._wrong("is a key of another kind")
        return found

    def _wrong(self, why: str, hint: str = "") -> Refused:
        written = hint or "make another one: starter crm token --cloudlet ORG/NAME"
        return Refused(Category.INVALID, f"the token in {self.file} {why}", written)


def _installed() -> None:
    if not find_spec("cryptography"):
        raise Refused(Category.INVALID, "tokens of CRMs need the extra `encryption`", "install it on this machine")


def _public(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()
