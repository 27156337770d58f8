"""Signs and verifies proofs: compact JWS with Ed25519 keys, over who sends a message and all that it says.

Cheap checks come first: a wrong proof costs a lookup, or one verification and one hash.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio.client import Interceptor, OutboundInterceptor, StartWorkflowInput, WorkflowHandle

from domain.access import Subject
from domain.errors import Category, Refused
from domain.exposure import OWN_ACTION
from domain.identities import (
    CLOCK_SKEW,
    MAX_SECONDS,
    Identities,
    KeyOwner,
    Principal,
    ProofClaims,
    ProofUse,
    key_id,
    message_digest,
    request_id_of,
)
from domain.message import SignedMessage
from domain.model import Request

with suppress(ModuleNotFoundError):  # the extra `encryption`; settings that need it say so when it is missing
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.jwk import OKPKey

M = TypeVar("M", bound=SignedMessage)
ALGORITHM = "Ed25519"
PROOF_SECONDS = 300.0
HINT = "sign it: RATCHET_KEY_FILE and RATCHET_SUBJECT, or `starter sign KIND ACTION PATH`; see docs/security.md"


class ProofSigner:
    """Signs messages with a private key, in the name of the key's owner or of somebody whom it vouches for."""

    def __init__(self, pem: bytes, name: str, namespace: str, seconds: float = PROOF_SECONDS) -> None:
        self._key = OKPKey.import_key(pem)
        self.name = name
        self.public = public_text(self._key.as_dict(private=False)["x"])
        self._namespace = namespace
        self._seconds = seconds

    def sign(self, message: M, purpose: str, subject: str = "") -> M:
        """Returns the message with its sender's name and the proof of it."""
        named = message.model_copy(update={"requested_by": subject or self.name, "proof": ""})
        now = time.time()
        claims = ProofClaims(
            sub=named.requested_by,
            aud=self._namespace,
            iat=now,
            exp=now + self._seconds,
            jti=uuid.uuid4().hex,
            rid=request_id_of(named),
            dig=message_digest(named, purpose),
        )
        header = {"alg": ALGORITHM, "kid": key_id(self.public)}
        proof = jws.serialize_compact(header, claims.model_dump_json().encode(), self._key, algorithms=[ALGORITHM])
        return named.model_copy(update={"proof": proof})


class ProofVerifier:
    """Tells who sent a message: only a key of the identities file proves a name."""

    def __init__(self, identities: Callable[[], Identities], namespace: str) -> None:
        self._identities = identities
        self._namespace = namespace
        self._known: Identities | None = None
        self._keys: dict[str, tuple[OKPKey, KeyOwner]] = {}

    def __call__(self, message: SignedMessage, purpose: str, at: datetime | None) -> Subject:
        """Returns the sender; raises Refused if the proof is missing, altered, expired, foreign or another's."""
        if not message.proof:
            raise _refused(message, "it has no proof")
        key, owner = self._find_key(message)
        claims = _verify_signature(message, key)
        now = (at or datetime.now(UTC)).timestamp()
        if claims.aud != self._namespace:
            raise _refused(message, f"its proof is for the namespace {claims.aud[:80]!a}")
        if not claims.iat - CLOCK_SKEW <= now < claims.exp + CLOCK_SKEW or claims.exp - claims.iat > MAX_SECONDS:
            raise _refused(message, "its proof has expired, or is not good yet")
        if claims.sub != message.requested_by or not owner.may_speak_for(claims.sub):
            raise _refused(message, f"the key of {owner.name} does not prove that name")
        if claims.rid != request_id_of(message) or claims.dig != message_digest(message, purpose):
            raise _refused(message, "it is not what was signed")
        use = ProofUse(claims.jti, datetime.fromtimestamp(claims.exp + CLOCK_SKEW, UTC))
        vouched = owner.name if owner.issuer else ""
        return Subject(claims.sub, self._groups_of(claims.sub, owner), proven=True, proof=use, issuer=vouched)

    def recall(self, principal: Principal) -> Subject:
        """Returns a principal with its groups of now; raises Refused if nobody proves or vouches for it any more.

        A name that was only claimed, before proofs were wanted, stays one: it has no groups of the identities file.
        """
        if not principal.proven:
            return Subject(principal.name)
        known = self._identities()
        subject, issuer = known.subjects.get(principal.name), known.issuers.get(principal.issuer)
        if principal.issuer and (
            issuer is None or not KeyOwner(principal.issuer, issuer).may_speak_for(principal.name)
        ):
            raise Refused(Category.FORBIDDEN, f"{principal.issuer} does not vouch for {principal.name} any more", HINT)
        if not principal.issuer and subject is None:
            raise Refused(Category.FORBIDDEN, f"{principal.name} is not known any more: RATCHET_IDENTITIES", HINT)
        groups = (*(subject.groups if subject else ()), *(issuer.groups if issuer else ()))
        return Subject(principal.name, groups, proven=True, issuer=principal.issuer)

    def _find_key(self, message: SignedMessage) -> tuple[OKPKey, KeyOwner]:
        if (known := self._identities()) is not self._known:
            self._known, self._keys = known, _index_keys(known)
        found = self._keys.get(_read_key_id(message.proof))
        if found is None:
            raise _refused(message, "its proof is by a key that is not known here")
        return found

    def _groups_of(self, subject: str, owner: KeyOwner) -> tuple[str, ...]:
        known = self._known.subjects.get(subject) if self._known else None
        return (*(known.groups if known else ()), *(owner.issuer.groups if owner.issuer else ()))


class ReplayMemory:
    """Remembers the proofs of reads and other calls of this worker until they expire: each is good for one call."""

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._used: dict[str, tuple[str, datetime]] = {}

    def check_use(self, subject: Subject, call: str) -> None:
        """Raises Refused if the subject's proof was used for another call before. A retried call is the same one."""
        if subject.proof is None:
            return
        if self._used.setdefault(subject.proof.id, (call, subject.proof.expires))[0] != call:
            raise Refused(Category.FORBIDDEN, f"a proof of {subject.name} was used before: it is good once", HINT)
        if len(self._used) > self._most:
            now = datetime.now(UTC)
            self._used = {proof: use for proof, use in self._used.items() if use[1] > now}


class ProgramSigner(Interceptor):
    """Signs the requests of our programs that this process starts, with the worker's key."""

    def __init__(self, signer: ProofSigner) -> None:
        self._signer = signer

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _SigningOutbound(next, self._signer)


class _SigningOutbound(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, signer: ProofSigner) -> None:
        super().__init__(next)
        self._signer = signer

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        input.args = [
            self._signer.sign(arg, OWN_ACTION, arg.requested_by) if isinstance(arg, Request) and not arg.proof else arg
            for arg in input.args
        ]
        return await super().start_workflow(input)


def new_key() -> tuple[bytes, str]:
    """Returns a new private key as PEM, and its public key as the identities file has it."""
    key = OKPKey.generate_key("Ed25519")
    return key.as_pem(private=True), public_text(key.as_dict(private=False)["x"])


def public_text(x: object) -> str:
    """Returns a public key as text."""
    return f"ed25519:{x}"


def _index_keys(known: Identities) -> dict[str, tuple[OKPKey, KeyOwner]]:
    owners = [(text, KeyOwner(name)) for name, subject in known.subjects.items() for text in subject.keys]
    owners += [(text, KeyOwner(name, issuer)) for name, issuer in known.issuers.items() for text in issuer.keys]
    return {
        key_id(text): (
            OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": text.removeprefix("ed25519:")}),
            owner,
        )
        for text, owner in owners
    }


def _read_key_id(proof: str) -> str:
    """Returns the key ID of the header, unverified; empty if it cannot be read."""
    head = proof.partition(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (binascii.Error, ValueError):
        return ""
    return str(header.get("kid", "")) if isinstance(header, dict) else ""


def _verify_signature(message: SignedMessage, key: OKPKey) -> ProofClaims:
    try:
        signed = jws.deserialize_compact(message.proof, key, algorithms=[ALGORITHM])
        return ProofClaims.model_validate_json(signed.payload)
    except (JoseError, ValidationError, ValueError) as error:
        raise _refused(message, "its proof was altered, or signed with another key") from error


def _refused(message: SignedMessage, why: str) -> Refused:
    who = message.requested_by or "somebody without a name"
    return Refused(Category.FORBIDDEN, f"{who} is not proven: {why}", HINT)
