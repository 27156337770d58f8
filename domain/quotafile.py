"""The quotas file, RATCHET_QUOTAS_FILE: the limits of each tenant."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints, model_validator

from domain import registry
from domain.model import FrozenModel
from domain.quotas import Quota

OTHERS = "*"  # every tenant that is not named; `ns:*` is every tenant of that sort

TenantPattern = Annotated[str, StringConstraints(pattern=r"^(\*|[a-z]{1,20}:(\*|[A-Za-z0-9._-]{1,63}))$")]


class Quotas(FrozenModel):
    """The quotas file: limits by tenant. A limit that a tenant's own lines leave out is that of its sort, or of `*`."""

    tenants: dict[TenantPattern, Quota]

    @model_validator(mode="after")
    def _check_known_roots(self) -> Quotas:
        """Refuses a tenant of a sort that no kind has: its limits would silently apply to nobody."""
        roots = {kind.scope[0] for kind in registry.KINDS.values() if not kind.serves_all}
        for name in self.tenants:
            if name != OTHERS and name.partition(":")[0] not in roots:
                raise ValueError(f"no tenant is called {name!r}; tenants begin with: {', '.join(sorted(roots))}")
        return self

    def quota_of(self, tenant: str) -> Quota | None:
        """Returns the limits of a tenant; None if it has none. What serves all tenants has no limits."""
        if tenant == registry.INSTALLATION:
            return None
        limits: dict[str, int] = {}
        for name in (OTHERS, f"{tenant.partition(':')[0]}:{OTHERS}", tenant):
            if name in self.tenants:
                limits |= self.tenants[name].model_dump(exclude_none=True)
        return Quota(**limits) if limits else None
