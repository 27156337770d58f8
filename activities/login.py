"""`starter login`: turns an OIDC token into a session, a key of the client's own that proves its name for a while.

The token travels once. Whoever reads it in Temporal's records cannot use it again: it is good for the first key only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio import activity

from activities.oidc import OidcVerifier
from activities.proofs import ProofSigner
from activities.reads import refusals_as_errors
from domain.errors import Category, Refused, Unavailable
from domain.identities import CLOCK_SKEW, LoginOrder, ProofUse, Session, public_key_id
from domain.ports import Inventory
from domain.wire import LOGIN

MAX_SESSION = 12 * 3600.0  # seconds


@dataclass(eq=False)
class LoginActivities:
    """The activity behind `starter login`."""

    inventory: Inventory
    tokens: OidcVerifier | None = None
    signer: ProofSigner | None = None

    @activity.defn(name=LOGIN)
    @refusals_as_errors
    async def log_in(self, order: LoginOrder) -> Session:
        """Returns a session for the subject of a token."""
        if self.tokens is None or not self.tokens.has_issuers:
            raise Refused(Category.INVALID, "these workers know no OIDC issuer", "list one in RATCHET_IDENTITIES: oidc")
        if self.signer is None:
            raise Refused(Category.INVALID, "this worker has no key to sign logins with", "set RATCHET_KEY_FILE there")
        now = activity.info().scheduled_time.timestamp()
        try:
            proven = await self.tokens.verify(order.token, now)
        except Unavailable as error:
            raise Refused(Category.NOT_ALLOWED, str(error), "try again when the issuer answers") from error
        try:
            until = datetime.fromtimestamp(proven.expires + CLOCK_SKEW, UTC)
            await self.inventory.use_proof(ProofUse(proven.digest, until), f"{LOGIN} {public_key_id(order.key)}")
        except Refused as refused:
            used = Refused(
                Category.FORBIDDEN,
                f"the token of {proven.name} was used for another login",
                "get a new token: each is good for one login",
            )
            await self.tokens.record_refusal(proven.login.issuer, used)
            raise used from refused
        ends = min(proven.expires, now + MAX_SESSION)
        certificate = self.signer.certify(proven.name, proven.login, order.key, ends)
        return Session(
            name=proven.name,
            issuer=proven.login.issuer,
            groups=proven.login.groups,
            expires=ends,
            certificate=certificate,
        )
