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
from dataclasses import replace
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
    PROOF_SECONDS,
    Identities,
    KeyOwner,
    Login,
    Principal,
    ProofClaims,
    ProofUse,
    SessionClaims,
    message_digest,
    public_key_id,
)
from domain.kinds import InternalProgram
from domain.message import SignedMessage
from domain.model import Request

with suppress(ModuleNotFoundError):  # the extra `encryption`; settings that need it say so when it is missing
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.jwk import OKPKey

M = TypeVar("M", bound=SignedMessage)
C = TypeVar("C", ProofClaims, SessionClaims)
ALGORITHM = "Ed25519"
CALL_FORMAT = "ratchet-call-1"
MAX_SESSIONS = 1_000  # certificates that are remembered as verified
CERTIFICATE_END = "~"  # between a session's certificate and the proof by its key
HINT = "log in: starter login; or sign it: RATCHET_KEY_FILE, `starter sign KIND ACTION PATH`; see docs/security.md"


class ProofSigner:
    """Signs messages with a private key, in the name of the key's owner or of somebody whom it vouches for.

    The key of a session has a certificate, which travels with every proof.
    """

    def __init__(
        self, pem: bytes, name: str, namespace: str, seconds: float = PROOF_SECONDS, certificate: str = ""
    ) -> None:
        self._key = OKPKey.import_key(pem)
        self.name = name
        self.public = encode_public_key(self._key.as_dict(private=False)["x"])
        self._namespace = namespace
        self._seconds = seconds
        self._prefix = certificate + CERTIFICATE_END if certificate else ""

    def sign(self, message: M, purpose: str, subject: str = "", login: Login | None = None) -> M:
        """Returns the message with its sender's name and the proof of it."""
        named = message.model_copy(update={"requested_by": subject or self.name, "proof": ""})
        now = time.time()
        request_id, digest = message_digest(named, purpose)
        claims = ProofClaims(
            sub=named.requested_by,
            aud=self._namespace,
            iat=now,
            exp=now + self._seconds,
            jti=uuid.uuid4().hex,
            rid=request_id,
            dig=digest,
            login=login,
        )
        return named.model_copy(update={"proof": self._prefix + self._sign_claims(claims)})

    def certify(self, subject: str, login: Login, key: str, until: float) -> str:
        """Returns the certificate of a session: until then, this key proves that subject."""
        now = time.time()
        return self._sign_claims(
            SessionClaims(sub=subject, aud=self._namespace, iat=now, exp=until, key=key, login=login)
        )

    def sign_call(self, call: str) -> bytes:
        """Returns the token of a call that a workflow of ours makes. The same call has the same token."""
        private = self._key.private_key
        assert isinstance(private, Ed25519PrivateKey)
        signature = private.sign(f"{CALL_FORMAT}\n{self._namespace}\n{call}".encode())
        return f"{public_key_id(self.public)}.{base64.b64encode(signature).decode()}".encode()

    def _sign_claims(self, claims: ProofClaims | SessionClaims) -> str:
        header = {"alg": ALGORITHM, "kid": public_key_id(self.public)}
        content = claims.model_dump_json(exclude_defaults=True).encode()
        return jws.serialize_compact(header, content, self._key, algorithms=[ALGORITHM])


class ProofVerifier:
    """Tells who sent a message: only a key of the identities file proves a name."""

    def __init__(self, identities: Callable[[], Identities], namespace: str) -> None:
        self._identities = identities
        self._namespace = namespace
        self._known: Identities | None = None
        self._keys: dict[str, tuple[OKPKey, KeyOwner]] = {}
        self._sessions: dict[str, tuple[SessionClaims, OKPKey]] = {}  # by certificates whose signatures were verified

    def __call__(self, message: SignedMessage, purpose: str, at: datetime | None) -> Subject:
        """Returns the sender; raises Refused if the proof is missing, altered, expired, foreign or another's."""
        if not message.proof:
            raise _unproven_refusal(message, "it has no proof")
        certificate, _, proof = message.proof.rpartition(CERTIFICATE_END)
        now = (at or datetime.now(UTC)).timestamp()
        key, owner = self._open_session(message, certificate, now) if certificate else self._find_key(message, proof)
        claims = _verify_signature(message, proof, key, ProofClaims)
        self._check_period(message, claims, now)
        if claims.sub != message.requested_by or not self._identities().may_speak(owner, claims.sub):
            raise _unproven_refusal(message, f"the key of {owner.name} does not prove that name")
        if (claims.rid, claims.dig) != message_digest(message, purpose):
            raise _unproven_refusal(message, "it is not what was signed")
        issued, expires = (datetime.fromtimestamp(at, UTC) for at in (claims.iat, claims.exp + CLOCK_SKEW))
        use = ProofUse(claims.jti, expires, issued)
        if claims.login and owner.issuer is None:
            raise _unproven_refusal(message, f"the key of {owner.name} vouches for nobody")
        return replace(self._describe_sender(claims.sub, owner.login or claims.login, owner), proof=use)

    def is_own_call(self, call: str, token: bytes) -> bool:
        """Tells whether a worker of ours made this call: its key is of an issuer that lists one of our programs."""
        key_id, _, signature = token.decode(errors="replace").partition(".")
        key, owner = self._index_keys().get(key_id, (None, None))
        if key is None or not owner or not owner.issuer or {*InternalProgram}.isdisjoint(owner.issuer.vouches_for):
            return False
        public = key.public_key
        assert isinstance(public, Ed25519PublicKey)
        try:
            signed = f"{CALL_FORMAT}\n{self._namespace}\n{call}".encode()
            public.verify(base64.b64decode(signature, validate=True), signed)
        except (InvalidSignature, ValueError):
            return False
        return True

    def look_up_caller(self, name: str, login: Login | None, key: str) -> Subject:
        """Returns somebody for whom the owner of this public key vouches, as a proof with it would prove them."""
        owner = self._index_keys().get(public_key_id(key), (None, KeyOwner("")))[1] if key else KeyOwner("")
        if owner.name and not self._identities().may_speak(owner, name):
            raise Refused(Category.FORBIDDEN, f"the key of {owner.name} does not prove the name {name}", HINT)
        return self._describe_sender(name, login, owner)

    def _describe_sender(self, name: str, login: Login | None, owner: KeyOwner) -> Subject:
        """Returns a sender with its groups: with a login those of its OIDC issuer, through whatever door it came."""
        if login is None:
            vouched = owner.name if owner.issuer else ""
            return Subject(name, self._groups_of(name, owner), proven=True, issuer=vouched)
        return self.look_up_principal(Principal(name=name, proven=True, issuer=login.issuer, groups=login.groups))

    def _check_period(self, message: SignedMessage, claims: ProofClaims | SessionClaims, now: float) -> None:
        if claims.aud != self._namespace:
            raise _unproven_refusal(message, f"its proof is for the namespace {claims.aud[:80]!a}")
        if not claims.iat - CLOCK_SKEW <= now < claims.exp + CLOCK_SKEW or claims.exp - claims.iat > MAX_SECONDS:
            raise _unproven_refusal(message, "its proof has expired, or is not good yet")

    def look_up_principal(self, principal: Principal) -> Subject:
        """Returns a principal with its groups of now; raises Refused if nobody proves or vouches for it any more.

        A name that was only claimed, before proofs were wanted, stays one: it has no groups of the identities file.
        """
        if not principal.proven:
            return Subject(principal.name)
        known = self._identities()
        subject, issuer = known.subjects.get(principal.name), known.issuers.get(principal.issuer)
        own = tuple(subject.groups) if subject else ()
        if (oidc := known.oidc.get(principal.issuer)) and known.may_vouch(oidc, principal.name):
            named = oidc.known_groups(principal.groups)
            groups = tuple(dict.fromkeys((*own, *oidc.groups, *named)))
            return Subject(principal.name, groups, proven=True, issuer=principal.issuer, token_groups=named)
        if principal.issuer and (issuer is None or not known.may_vouch(issuer, principal.name)):
            raise Refused(Category.FORBIDDEN, f"{principal.issuer} does not vouch for {principal.name} any more", HINT)
        if not principal.issuer and subject is None:
            raise Refused(Category.FORBIDDEN, f"{principal.name} is not known any more: RATCHET_IDENTITIES", HINT)
        groups = (*own, *(issuer.groups if issuer else ()))
        return Subject(principal.name, groups, proven=True, issuer=principal.issuer)

    def _open_session(self, message: SignedMessage, certificate: str, now: float) -> tuple[OKPKey, KeyOwner]:
        """Returns the key of a session, whose certificate an issuer of the identities file has signed."""
        key, owner = self._find_key(message, certificate)
        if (known := self._sessions.get(certificate)) is None:
            session = _verify_signature(message, certificate, key, SessionClaims)
            if len(self._sessions) >= MAX_SESSIONS:
                self._sessions.clear()
            known = self._sessions[certificate] = (session, _import_public(session.key))
        session, session_key = known
        self._check_period(message, session, now)
        if owner.issuer is None or not self._identities().may_speak(owner, session.sub):
            raise _unproven_refusal(message, f"the key of {owner.name} does not vouch for {session.sub}")
        return session_key, KeyOwner(session.sub, login=session.login)

    def _find_key(self, message: SignedMessage, proof: str) -> tuple[OKPKey, KeyOwner]:
        found = self._index_keys().get(str(read_header(proof).get("kid", "")))
        if found is None:
            raise _unproven_refusal(message, "its proof is by a key that is not known here")
        return found

    def _index_keys(self) -> dict[str, tuple[OKPKey, KeyOwner]]:
        """Returns the keys of the identities file, by their IDs."""
        if (known := self._identities()) is not self._known:
            self._known, self._keys, self._sessions = known, _index_keys(known), {}
        return self._keys

    def _groups_of(self, subject: str, owner: KeyOwner) -> tuple[str, ...]:
        known = self._known.subjects.get(subject) if self._known else None
        return (*(known.groups if known else ()), *(owner.issuer.groups if owner.issuer else ()))


def used_proof_refusal(subject: Subject) -> Refused:
    """Returns the refusal of a proof that has been used."""
    return Refused(Category.FORBIDDEN, f"a proof of {subject.name} was used before: it is good once", HINT)


class ReplayMemory:
    """Remembers the proofs of reads and other calls of this worker until they expire: each is good for one call."""

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._used: dict[str, tuple[str, datetime]] = {}

    def check_single_use(self, subject: Subject, call: str) -> None:
        """Raises Refused if the subject's proof was used for another call before. A retried call is the same one."""
        if subject.proof is None:
            return
        if self._used.setdefault(subject.proof.id, (call, subject.proof.expires))[0] != call:
            raise used_proof_refusal(subject)
        if len(self._used) > self._most:
            now = datetime.now(UTC)
            self._used = {proof: use for proof, use in self._used.items() if use[1] > now}


class ProgramSigningInterceptor(Interceptor):
    """Signs the requests of our programs that this process starts, with the worker's key."""

    def __init__(self, signer: ProofSigner) -> None:
        self._signer = signer

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _SigningClientOutbound(next, self._signer)


class _SigningClientOutbound(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, signer: ProofSigner) -> None:
        super().__init__(next)
        self._signer = signer

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        input.args = [
            self._signer.sign(arg, OWN_ACTION, arg.requested_by) if isinstance(arg, Request) and not arg.proof else arg
            for arg in input.args
        ]
        return await super().start_workflow(input)


def generate_key_pair() -> tuple[bytes, str]:
    """Returns a new private key as PEM, and its public key as the identities file has it."""
    key = OKPKey.generate_key("Ed25519")
    return key.as_pem(private=True), encode_public_key(key.as_dict(private=False)["x"])


def encode_public_key(x: object) -> str:
    """Returns a public key as text."""
    return f"ed25519:{x}"


def _index_keys(known: Identities) -> dict[str, tuple[OKPKey, KeyOwner]]:
    owners = [(text, KeyOwner(name)) for name, subject in known.subjects.items() for text in subject.keys]
    owners += [(text, KeyOwner(name, issuer)) for name, issuer in known.issuers.items() for text in issuer.keys]
    return {public_key_id(text): (_import_public(text), owner) for text, owner in owners}


def _import_public(text: str) -> OKPKey:
    return OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": text.removeprefix("ed25519:")})


def read_header(signed: str) -> dict[str, Any]:
    """Returns the header of a compact JWS, unverified; empty if it cannot be read."""
    return read_part(signed.partition(".")[0])


def read_part(part: str) -> dict[str, Any]:
    """Returns a part of a compact JWS, unverified; empty if it is no JSON object."""
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _verify_signature(message: SignedMessage, signed: str, key: OKPKey, claims: type[C]) -> C:
    try:
        return claims.model_validate_json(jws.deserialize_compact(signed, key, algorithms=[ALGORITHM]).payload)
    except (JoseError, ValidationError, ValueError) as error:
        raise _unproven_refusal(message, "its proof was altered, or signed with another key") from error


def _unproven_refusal(message: SignedMessage, why: str) -> Refused:
    who = message.requested_by or "somebody without a name"
    return Refused(Category.FORBIDDEN, f"{who} is not proven: {why}", HINT)
