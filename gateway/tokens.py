"""Tokens that callers prove themselves with: of a file of names and hashes, or of an OIDC issuer."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from activities.oidc import OidcVerifier
from client.documents import UnreadableDocument, read_document
from domain.errors import Category, Refused, Unavailable
from domain.identities import Login
from domain.validation import ObjectPath, describe_validation_errors
from gateway.problems import TokensUnusable, Unauthorized

PREFIX = "ratchet_"
_log = logging.getLogger("ratchet.gateway")
TOKENS_FILE_HINT = "mend RATCHET_GATEWAY_TOKENS; `starter token NAME` prints a line for it"


class TokenOwner(BaseModel):
    """Who has a token, and until when. The token itself is nowhere: only its hash."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    hash: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
    expires: datetime | None = None
    tenants: list[ObjectPath] = []  # what it may use in the dialects, such as project:p1; empty: everything


class TokenList(BaseModel):
    """The file's content."""

    model_config = ConfigDict(extra="forbid")

    tokens: list[TokenOwner] = Field(max_length=10_000)


@dataclass(frozen=True)
class Caller:
    """Who asks. `tenants` are what the token may use in the dialects, such as `project:p1`; empty: everything."""

    name: str
    tenants: tuple[str, ...] = ()
    login: Login | None = None  # with an OIDC token


def generate_token() -> str:
    """A new random token."""
    return PREFIX + secrets.token_urlsafe(32)


def generate_jwt_token(name: str, expires: datetime) -> str:
    """A new random token in the form of a JWT, for clients that look into it for its end.

    Its signature is random: like any other token, it is known by its hash.
    """
    header = {"alg": "HS256", "typ": "JWT"}
    payload = {"username": name, "exp": int(expires.timestamp())}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, payload))
    return ".".join((*parts, secrets.token_urlsafe(32)))


def hash_token(token: str) -> str:
    """The hash that the file has. Plain SHA-256 suffices: a token is random and cannot be guessed from a list."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


class TokenFile:
    """The tokens of a file, read again when it changes. Refused if it is wrong, or readable by others."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tokens: dict[str, TokenOwner] = {}
        self._version: tuple[int, int] | None = None
        self._load()

    def find(self, token: str) -> TokenOwner | None:
        """Returns a token's line; None if it is not known. Raises Unauthorized if it has expired."""
        try:
            self._load()
        except Refused as error:  # nobody may in: a token that was taken back must not work for longer
            _log.error("%s; %s", error.message, error.hint)
            raise TokensUnusable("the gateway's token file cannot be used") from error
        found = self._tokens.get(hash_token(token))
        if found is None or not hmac.compare_digest(found.hash, hash_token(token)):
            return None
        if found.expires and found.expires <= datetime.now(UTC):
            raise Unauthorized(f"the token of {found.name} expired")
        return found

    def _load(self) -> None:
        """Read the file again if it changed."""
        try:
            seen = self._file.stat()
        except OSError as error:
            raise _unusable_file(self._file, f"cannot be read: {error.strerror}") from error
        if (version := (seen.st_mtime_ns, seen.st_ino)) == self._version:
            return
        if seen.st_mode & 0o077:
            raise _unusable_file(self._file, "can be read or changed by others: chmod 600")
        try:
            found = TokenList.model_validate(read_document(self._file) or {"tokens": []})
        except UnreadableDocument as error:
            raise _unusable_file(self._file, str(error)) from error
        except ValidationError as error:
            raise _unusable_file(self._file, f"is not valid: {describe_validation_errors(error, 'file')}") from error
        self._tokens = {token.hash: token for token in found.tokens}
        self._version = version


@dataclass(frozen=True)
class CallerTokens:
    """All tokens that a gateway believes: those of its file, and those of OIDC issuers."""

    file: TokenFile | None = None
    oidc: OidcVerifier | None = None

    async def find_token_owner(self, token: str) -> Caller:
        """Returns who has a token, and what it may use; raises Unauthorized if it is missing, unknown or expired."""
        if not token:
            raise Unauthorized("this gateway wants a token")
        if self.file and (found := self.file.find(token)):
            return Caller(found.name, tuple(found.tenants))
        if self.oidc is None or not self.oidc.has_issuers or token.count(".") != 2:
            raise Unauthorized("the token is not known")
        try:
            proven = await self.oidc.verify(token)
        except Refused as refused:
            raise Unauthorized(refused.message) from refused
        except Unavailable as error:
            raise TokensUnusable(str(error)) from error
        return Caller(proven.name, login=proven.login)


def _unusable_file(file: Path, why: str) -> Refused:
    return Refused(Category.INVALID, f"the token file {file} {why}", TOKENS_FILE_HINT)
