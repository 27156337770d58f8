"""Who a client speaks for: the name, and with a key the proof, on every message that it sends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from client.gateway import user_name
from client.login import load_session_signer
from client.settings import ClientSettings
from domain.errors import Category, Refused
from domain.identities import PROOF_SECONDS, Login
from domain.message import SignedMessage

if TYPE_CHECKING:
    from activities.proofs import ProofSigner

M = TypeVar("M", bound=SignedMessage)
KEY_HINT = "make one: starter key new NAME; it is a PEM file with mode 600"


class MessageSigner:
    """Puts a name on messages that have none. Nothing proves it: workers show it as claimed."""

    public_key = ""  # with which workers verify its proofs

    def __init__(self, name: str = "") -> None:
        self.name = name

    def sign(self, message: M, purpose: str) -> M:
        """Returns the message with its sender's name. `purpose` is what the message is for: an activity, a signal."""
        if message.requested_by or not self.name:
            return message
        return message.model_copy(update={"requested_by": self.name})

    def sign_for(self, message: M, purpose: str, subject: str, login: Login | None = None) -> M:
        """Returns the message in the name of somebody else, whom this process has authenticated."""
        return message.model_copy(update={"requested_by": subject})


class KeyMessageSigner(MessageSigner):
    """Signs every message with a private key."""

    def __init__(self, signer: ProofSigner) -> None:
        super().__init__(signer.name)
        self._signer = signer
        self.public_key = signer.public

    def sign(self, message: M, purpose: str) -> M:
        return self._signer.sign(message, purpose)

    def sign_for(self, message: M, purpose: str, subject: str, login: Login | None = None) -> M:
        return self._signer.sign(message, purpose, subject, login)


class VouchingMessageSigner(MessageSigner):
    """Speaks for a caller whom this process has authenticated: the caller's name replaces any other."""

    def __init__(self, own: MessageSigner, caller: str, login: Login | None = None) -> None:
        super().__init__(caller)
        self.login = login  # by which OIDC token
        self._own: MessageSigner = own._own if isinstance(own, VouchingMessageSigner) else own
        self.public_key = self._own.public_key

    def sign(self, message: M, purpose: str) -> M:
        return self._own.sign_for(message, purpose, self.name, self.login)


def load_signer(settings: ClientSettings, namespace: str, seconds: float = PROOF_SECONDS) -> ProofSigner | None:
    """Returns the signer of RATCHET_KEY_FILE; None without one. Refuses a key that others can read, or a wrong one."""
    if not settings.key_file:
        return None
    from activities.proofs import ProofSigner  # it loads the cryptography, which most commands do not need

    file = Path(settings.key_file)
    try:
        if file.stat().st_mode & 0o077:
            raise Refused(Category.INVALID, f"the key {file} can be read or changed by others: chmod 600", KEY_HINT)
        return ProofSigner(file.read_bytes(), settings.subject or user_name(), namespace, seconds)
    except OSError as error:
        raise Refused(Category.INVALID, f"the key {file} cannot be read: {error.strerror}", KEY_HINT) from error
    except (ValueError, NameError) as error:
        raise Refused(Category.INVALID, f"{file} is no private key for Ed25519", KEY_HINT) from error


def make_message_signer(settings: ClientSettings, namespace: str) -> MessageSigner:
    """Returns the speaker of these settings: proven by a key or a login, or claiming the user's name."""
    signer = load_signer(settings, namespace)
    if signer is None and settings.uses_login:
        signer = load_session_signer(settings.home, namespace)
    return KeyMessageSigner(signer) if signer else MessageSigner(settings.subject or user_name())
