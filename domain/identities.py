"""The identities file: whose key proves which subject, and who may vouch for others. And what a proof says."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field, StringConstraints

from domain.message import Model, SenderName, SignedMessage

MAX_SECONDS = 7 * 24 * 3600  # for which a proof may be good
CLOCK_SKEW = 30.0  # seconds by which the clocks of a sender and of Temporal may differ

Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]
PublicKey = Annotated[str, StringConstraints(pattern=r"^ed25519:[A-Za-z0-9_-]{43}$")]


class KnownSubject(Model):
    """A subject: its public keys, and its groups in the policy."""

    keys: list[PublicKey] = Field(min_length=1, max_length=20)
    groups: list[Name] = []


class KnownIssuer(Model):
    """Who may vouch for others: a gateway for its callers, workers for our programs. Patterns of names."""

    keys: list[PublicKey] = Field(min_length=1, max_length=20)
    vouches_for: list[Name] = Field(min_length=1)
    groups: list[Name] = []  # of everybody whom it vouches for


class Identities(Model):
    """The identities file."""

    subjects: dict[Name, KnownSubject] = {}
    issuers: dict[Name, KnownIssuer] = {}


@dataclass(frozen=True)
class KeyOwner:
    """Whose key it is, and for whom it may speak."""

    name: str
    issuer: KnownIssuer | None = None

    def may_speak_for(self, subject: str) -> bool:
        """Tells whether a proof with this key proves that subject."""
        if self.issuer is None:
            return subject == self.name
        return any(fnmatchcase(subject, pattern) for pattern in self.issuer.vouches_for)


class ProofClaims(Model):
    """What a proof says: who, in which namespace, until when, once, and about which message."""

    sub: Name
    aud: str
    iat: float
    exp: float
    jti: Annotated[str, StringConstraints(min_length=8, max_length=64)]
    rid: str = ""  # the request ID
    dig: str


class Principal(Model):
    """Whoever our programs act for, as they were known when they asked for it. Their rights are looked up when used."""

    name: SenderName = ""
    proven: bool = False
    issuer: str = ""  # who vouched for the name; empty: a key of their own, or nobody
    groups: list[str] = []  # that the issuer's token named; other groups are looked up


@dataclass(frozen=True)
class ProofUse:
    """A proof that was used: its ID, and until when it must be remembered."""

    id: str
    expires: datetime


def message_digest(message: SignedMessage, purpose: str) -> str:
    """Returns a hash of everything that the proof of a message covers: what it is for, who sends it, all it says."""
    covered = {"for": purpose, "by": message.requested_by, "says": message.signed_content()}
    return hashlib.sha256(json.dumps(covered, sort_keys=True, default=str).encode()).hexdigest()


def request_id_of(message: SignedMessage) -> str:
    """Returns the request ID in a message; empty if it has none."""
    return str(message.signed_content().get("request_id", ""))


def key_id(public: str) -> str:
    """Returns the ID of a public key, as the header of a proof names it."""
    return hashlib.sha256(public.encode()).hexdigest()[:16]
