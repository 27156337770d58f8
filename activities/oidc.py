"""Verifies tokens of OIDC issuers: the issuers of the identities file, with their keys, and no others.

A token's header is not believed: its algorithm must be one that the issuer has, and its key one of the issuer's set.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from activities.access import RefusalLineBudget
from activities.keysets import KeySets
from activities.proofs import read_header, read_part
from domain.errors import Category, Refused, StoreUnavailable
from domain.identities import CLOCK_SKEW, MAX_TOKEN, Identities, Login, OidcIssuer, is_program_name
from domain.requests import AccessAttempt
from domain.wire import LOGIN

with suppress(ModuleNotFoundError):  # the extra `encryption`
    from joserfc import jws
    from joserfc.errors import JoseError

MAX_NAME = 100
MAX_GROUPS_TEXT = 1_000  # characters of all groups: they travel with every proof
HINT = "get a new token from the issuer; which are believed: RATCHET_IDENTITIES, docs/security.md"
RecordAttempt = Callable[[AccessAttempt], Awaitable[None]]
Seconds = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1e11)]


class TokenClaims(BaseModel):
    """What every token must say. Its name and groups are in claims that the issuer's entry names."""

    model_config = ConfigDict(extra="allow", frozen=True)

    iss: str
    aud: str | list[str]
    exp: Seconds
    nbf: Seconds = 0
    iat: Seconds = 0

    def claim(self, name: str) -> Any:
        """Returns a claim by its name; None if the token has none."""
        return self.model_dump().get(name)


@dataclass(frozen=True)
class ProvenToken:
    """Whom a token proves, and until when."""

    name: str
    login: Login
    expires: float
    digest: str


class OidcVerifier:
    """Tells whom a token proves. `record` writes a line about a refused one, a few in a minute."""

    def __init__(self, identities: Callable[[], Identities], record: RecordAttempt | None = None) -> None:
        self._identities = identities
        self._record = record
        self._key_sets = KeySets()
        self._lines = RefusalLineBudget()

    @property
    def has_issuers(self) -> bool:
        """Tells whether the identities file lists an OIDC issuer."""
        return bool(self._identities().oidc)

    async def verify(self, token: str, now: float | None = None) -> ProvenToken:
        """Returns whom the token proves; raises Refused, or Unavailable if the issuer's keys are out of reach."""
        issuer_name = "unknown"
        try:
            issuer_name, issuer = self._find_issuer(token)
            claims = await self._verify_signature(token, issuer)
            _check_claims(claims, issuer, time.time() if now is None else now)
            return ProvenToken(
                self._name_in(claims, issuer),
                Login(issuer=issuer_name, groups=_groups_in(claims, issuer)),
                claims.exp,
                hashlib.sha256(token.encode()).hexdigest(),
            )
        except Refused as refused:
            await self.record_refusal(issuer_name, refused)
            raise

    async def record_refusal(self, issuer_name: str, refused: Refused) -> None:
        """Keeps a refused login in the audit trail, below the issuer's name: it is about no object."""
        path = f"{LOGIN}:{issuer_name}"
        if self._record and self._lines.try_spend_line(path):
            line = AccessAttempt(path=path, verb=LOGIN, message=f"refused: {refused.message}")
            with suppress(StoreUnavailable, Refused):  # it stays refused, whether the line can be written or not
                await self._record(line)

    def _find_issuer(self, token: str) -> tuple[str, OidcIssuer]:
        if len(token) > MAX_TOKEN or token.count(".") != 2:
            raise _refused("it is not a signed token")
        named = read_part(token.split(".")[1]).get("iss")
        for name, issuer in self._identities().oidc.items():
            if issuer.issuer == named:
                return name, issuer
        raise _refused(f"its issuer {str(named)[:80]!a} is not known here")

    async def _verify_signature(self, token: str, issuer: OidcIssuer) -> TokenClaims:
        header = read_header(token)
        algorithm, public_key_id = header.get("alg"), header.get("kid")
        if algorithm not in issuer.algorithms:
            raise _refused(f"its algorithm {str(algorithm)[:20]!a} is not one of {', '.join(issuer.algorithms)}")
        key = (
            await self._key_sets.find_key(issuer.key_set, public_key_id)
            if isinstance(public_key_id, str) and public_key_id
            else None
        )
        if key is None or key.get("alg", algorithm) != algorithm:
            raise _refused("it is signed with a key that its issuer does not have")
        try:
            signed = jws.deserialize_compact(token, key, algorithms=[algorithm])
            return TokenClaims.model_validate_json(signed.payload)
        except ValidationError as error:
            fields = ", ".join(sorted({str(each["loc"][0]) for each in error.errors() if each["loc"]}))
            raise _refused(f"it lacks or has wrong claims: {fields or 'all'}") from error
        except (JoseError, ValueError, TypeError) as error:
            raise _refused("it was altered, or signed with another key") from error

    def _name_in(self, claims: TokenClaims, issuer: OidcIssuer) -> str:
        """Returns the name that the token proves. Names of our programs, and paths of objects, are no person's."""
        name = claims.claim(issuer.name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise _refused(f"its claim {issuer.name_claim} is no name")
        if is_program_name(name):
            raise _refused(f"{name!a} cannot be the name of a subject: choose another name_claim")
        if issuer.name_claim == "email" and claims.claim("email_verified") is not True:
            raise _refused("its issuer has not verified the address")
        if not self._identities().may_vouch(issuer, name):
            raise _refused(f"its issuer does not vouch for {name!a}")
        return name


def _check_claims(claims: TokenClaims, issuer: OidcIssuer, now: float) -> None:
    if claims.iss != issuer.issuer:
        raise _refused("its issuer is another")
    if issuer.audience not in ([claims.aud] if isinstance(claims.aud, str) else claims.aud):
        raise _refused("it is for another audience")
    if now >= claims.exp + CLOCK_SKEW:
        raise _refused("it has expired")
    if now < claims.nbf - CLOCK_SKEW or now < claims.iat - CLOCK_SKEW:
        raise _refused("it is not good yet")


def _groups_in(claims: TokenClaims, issuer: OidcIssuer) -> list[str]:
    named = claims.claim(issuer.groups_claim)
    texts = [each for each in named if isinstance(each, str) and each] if isinstance(named, list) else []
    groups = list(dict.fromkeys(issuer.known_groups(texts)))
    if sum(map(len, groups)) > MAX_GROUPS_TEXT or any(len(group) > MAX_NAME for group in groups):
        raise _refused("it names too many groups, or too long ones: narrow token_groups")
    return groups


def _refused(why: str) -> Refused:
    return Refused(Category.FORBIDDEN, f"the token is refused: {why}", HINT)
