"""The identities file: whose key proves which subject, who may vouch for others, and whose tokens are believed.

And what proofs and sessions say.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from domain.kinds import InternalProgram
from domain.message import FrozenModel, SenderName, SignedMessage, hash_value

MAX_SECONDS = 7 * 24 * 3600  # for which a proof may be good
PROOF_SECONDS = 300.0  # for which one is, usually
MAX_TOKEN = 16_000  # characters of an OIDC token
CLOCK_SKEW = 30.0  # seconds by which the clocks of a sender and of Temporal may differ

IdentityName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
PublicKey = Annotated[str, StringConstraints(pattern=r"^ed25519:[A-Za-z0-9_-]{43}$")]
# Signatures with a private key only: a token "signed" with a shared secret, or with nothing, proves nothing.
TokenAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"]
# A file, or a URL on whose way nobody can put other keys.
KeySetAddress = Annotated[
    str,
    StringConstraints(pattern=r"^(/|https://[^/\s]|http://(127\.0\.0\.1|localhost|\[::1\])[:/])\S*$", max_length=500),
]


class KnownSubject(FrozenModel):
    """A subject: its public keys, and its groups in the policy."""

    keys: list[PublicKey] = Field(min_length=1, max_length=20)
    groups: list[IdentityName] = []


class KnownIssuer(FrozenModel):
    """Who may vouch for others: a gateway for its callers, workers for our programs. Patterns of names."""

    keys: list[PublicKey] = Field(min_length=1, max_length=20)
    vouches_for: list[IdentityName] = Field(min_length=1)
    groups: list[IdentityName] = []  # of everybody whom it vouches for


class OidcIssuer(FrozenModel):
    """An OIDC issuer: where its keys are, what its tokens must say, and whom they may prove."""

    issuer: Annotated[str, StringConstraints(pattern=r"^https?://\S+$", max_length=500)]  # `iss`, to the letter
    audience: Annotated[str, StringConstraints(min_length=1, max_length=500)]  # one of `aud`
    key_set: KeySetAddress
    algorithms: list[TokenAlgorithm] = Field(default=["RS256", "ES256"], min_length=1)
    name_claim: IdentityName = "sub"  # the claim that is the subject's name
    vouches_for: list[IdentityName] = Field(min_length=1)  # patterns of names
    groups: list[IdentityName] = []  # of everybody whom it proves
    groups_claim: IdentityName = "groups"
    token_groups: list[IdentityName] = []  # patterns of groups that its tokens may name; others are left out

    def known_groups(self, named: list[str]) -> tuple[str, ...]:
        """Returns those of a token's groups that count."""
        return tuple(name for name in named if any(fnmatchcase(name, pattern) for pattern in self.token_groups))


class Identities(FrozenModel):
    """The identities file."""

    subjects: dict[IdentityName, KnownSubject] = {}
    issuers: dict[IdentityName, KnownIssuer] = {}
    oidc: dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")], OidcIssuer] = {}

    @model_validator(mode="after")
    def _check_unique_issuers(self) -> Identities:
        """Refuses two issuers under one name, or one address: a record could mean either."""
        if twice := self.oidc.keys() & self.issuers.keys():
            raise ValueError(f"{sorted(twice)[0]} is below issuers and below oidc: choose another name")
        addresses = [each.issuer for each in self.oidc.values()]
        if len({*addresses}) < len(addresses):
            raise ValueError("oidc: two entries have the same issuer")
        if taken := [name for name in self.subjects if is_program_name(name)]:
            raise ValueError(f"subjects: {taken[0]!r} is the name of a program of ours, or a path: choose another name")
        return self

    def may_vouch(self, issuer: KnownIssuer | OidcIssuer, name: str) -> bool:
        """Tells whether an issuer may prove this name.

        A pattern covers people and machines. Our programs and the issuers themselves count only if they are listed to
        the letter; what has a path is an object of ours, and proves itself by its workflow.
        """
        if name in issuer.vouches_for:
            return ":" not in name
        reserved = is_program_name(name) or name in self.issuers or name in self.oidc
        return not reserved and any(fnmatchcase(name, pattern) for pattern in issuer.vouches_for)

    def may_speak(self, owner: KeyOwner, name: str) -> bool:
        """Tells whether a proof with the owner's key proves this name."""
        return name == owner.name if owner.issuer is None else self.may_vouch(owner.issuer, name)


class Login(FrozenModel):
    """Who an OIDC token proved: the issuer's name in the identities file, and the groups that the token named."""

    issuer: IdentityName
    groups: list[IdentityName] = []


@dataclass(frozen=True)
class KeyOwner:
    """Whose key it is: a subject's, an issuer's, or that of a session."""

    name: str
    issuer: KnownIssuer | None = None
    login: Login | None = None  # of the key of a session


class ProofClaims(FrozenModel):
    """What a proof says: who, in which namespace, until when, once, and about which message."""

    sub: IdentityName
    aud: str
    iat: float
    exp: float
    jti: Annotated[str, StringConstraints(min_length=8, max_length=64)]
    rid: str = ""  # the request ID
    dig: str
    login: Login | None = None  # how an issuer's caller proved its name to the issuer


class SessionClaims(FrozenModel):
    """What a session's certificate says: until when a key proves a name that an OIDC token has proven."""

    sub: IdentityName
    aud: str
    iat: float
    exp: float
    key: PublicKey
    login: Login


class LoginOrder(FrozenModel):
    """A token, and the public key that is to prove the token's subject."""

    token: Annotated[str, Field(max_length=MAX_TOKEN, repr=False)]
    key: PublicKey


class Session(FrozenModel):
    """Who has logged in, by which issuer, until when, and the certificate that proofs carry."""

    name: IdentityName
    issuer: IdentityName
    groups: list[IdentityName] = []
    expires: float
    certificate: str


class Principal(FrozenModel):
    """Whoever our programs act for, as they were known when they asked for it. Their rights are looked up when used."""

    name: SenderName = ""
    proven: bool = False
    issuer: str = ""  # who vouched for the name; empty: a key of their own, or nobody
    groups: list[str] = []  # that the issuer's token named; other groups are looked up


@dataclass(frozen=True)
class ProofUse:
    """A proof that was used: its ID, until when it must be remembered, and when it was signed, if it says so."""

    id: str
    expires: datetime
    issued: datetime | None = None


def is_program_name(name: str) -> bool:
    """Tells whether a name is that of a program of ours, or the path of an object: no person's, and no machine's."""
    return ":" in name or name in {*InternalProgram}


def message_digest(message: SignedMessage, purpose: str) -> tuple[str, str]:
    """Returns the request ID of a message, if it has one, and a hash of everything that its proof covers: what it is
    for, who sends it, all it says."""
    content = message.signed_content()
    covered = {"for": purpose, "by": message.requested_by, "says": content}
    return str(content.get("request_id", "")), hash_value(covered)


def public_key_id(public: str) -> str:
    """Returns the ID of a public key, as the header of a proof names it."""
    return hashlib.sha256(public.encode()).hexdigest()[:16]
