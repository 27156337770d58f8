"""Proofs that were used: each is good for one run. Rows are kept until the proof has expired."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from domain.errors import Category, Refused
from domain.identities import ProofUse
from store.identity import read_identity
from store.once import forget_expired_keys
from store.schema import StoreIdentityRow, proofs

_INSERT_UNLESS_USED = {
    "sqlite": sqlite.insert(proofs).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(proofs).on_conflict_do_nothing(),
}
_SELECT_RUN = sa.select(proofs.c.run).where(proofs.c.id == sa.bindparam("proof"))
_DELETE_EXPIRED = sa.delete(proofs).where(proofs.c.expires_at < sa.bindparam("now"))


def use_proof(
    connection: sa.Connection, proof: ProofUse | None, run: str, identity: StoreIdentityRow | None = None
) -> None:
    """Takes a proof for a run; raises Refused if another run has used it.

    A store that was restored from a backup has forgotten which proofs were used after that: it takes none from before.
    """
    if proof is None:
        return
    identity = identity or read_identity(connection)
    if proof.issued and identity.incarnation > 1 and proof.issued <= identity.since:
        restored = f"{identity.since:%Y-%m-%d %H:%M:%SZ}"
        message = f"its proof is older than the store, which was restored from a backup at {restored}"
        raise Refused(Category.FORBIDDEN, message, "sign the request anew")
    row = {"id": proof.id, "run": run, "expires_at": proof.expires}
    connection.execute(_INSERT_UNLESS_USED[connection.dialect.name], row)
    if connection.execute(_SELECT_RUN, {"proof": proof.id}).scalar_one() != run:
        raise Refused(
            Category.FORBIDDEN, "its proof was used before: it is good for one request", "sign the request anew"
        )


def is_proof_used(connection: sa.Connection, proof: str) -> bool:
    """Tells whether a run has used this proof."""
    return connection.execute(_SELECT_RUN, {"proof": proof}).scalar_one_or_none() is not None


def forget_expired(connection: sa.Connection, now: datetime) -> int:
    """Removes what is over: proofs that no worker accepts any more, and keys of `once.py`. Returns how many proofs."""
    forget_expired_keys(connection, now)
    return connection.execute(_DELETE_EXPIRED, {"now": now}).rowcount
