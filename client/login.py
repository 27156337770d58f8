"""The session of `starter login`, in a file of the home folder: a private key and the certificate for it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from client.homefiles import LOGIN_FILE, write_private_file
from domain.errors import Category, Refused
from domain.identities import PROOF_SECONDS, Session
from domain.message import FrozenModel

if TYPE_CHECKING:
    from activities.proofs import ProofSigner

HINT = "log in again: starter login"


class StoredLogin(FrozenModel):
    """The login file: a private key, and the session that was certified for it."""

    namespace: str
    key: str  # PEM
    session: Session


def save_login(home: Path, login: StoredLogin) -> Path:
    """Writes the file; only its owner may read it. Returns its path."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return write_private_file(home / LOGIN_FILE, login.model_dump_json())


def forget_login(home: Path) -> bool:
    """Removes the file. Returns whether there was one."""
    with suppress(FileNotFoundError):
        (home / LOGIN_FILE).unlink()
        return True
    return False


def load_session_signer(home: Path, namespace: str, seconds: float = PROOF_SECONDS) -> ProofSigner | None:
    """Returns the signer of a login to this namespace; None without one. Refuses one that has expired."""
    file = home / LOGIN_FILE
    try:
        if file.stat().st_mode & 0o077:
            raise Refused(Category.INVALID, f"{file} can be read or changed by others: chmod 600", HINT)
        stored = StoredLogin.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise Refused(Category.INVALID, f"{file} cannot be used", f"{HINT}; or: starter logout") from error
    if stored.namespace != namespace:
        return None
    session = stored.session
    if session.expires <= time.time():
        raise Refused(Category.FORBIDDEN, f"the login of {session.name} has expired", f"{HINT}; or: starter logout")
    from activities.proofs import ProofSigner  # it loads the cryptography, which most commands do not need

    return ProofSigner(stored.key.encode(), session.name, namespace, seconds, session.certificate)
