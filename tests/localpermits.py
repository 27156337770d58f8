"""A permit store in memory, for a single worker or several in one process."""

from __future__ import annotations

from collections.abc import Sequence

from activities.fence import seconds_since_boot
from domain.permits import PermitLimits, PermitReply, PermitRequest, PermitShare, compute_permit_shares


class LocalPermitStore:
    """Divides permits as the store does, without a database."""

    def __init__(self) -> None:
        self._shares: dict[str, list[PermitShare]] = {}

    async def exchange_permits(
        self, cloud: str, worker: str, wishes: Sequence[PermitRequest], limits: PermitLimits
    ) -> PermitReply:
        shares = self._shares.get(cloud, [])
        mine, terms = compute_permit_shares(shares, worker, wishes, limits, seconds_since_boot())
        self._shares[cloud] = [*(share for share in shares if share.worker != worker), *mine]
        return terms
