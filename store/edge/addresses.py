"""The stored address of a cloudlet's CRM."""

from __future__ import annotations

from domain.edge.messages import CrmAddress
from domain.edge.specs import CloudletSpec
from store.schema import ObjectRow


def crm_address_of(cloudlet: ObjectRow, role: str = "crm") -> CrmAddress | None:
    """Returns the address of the cloudlet's connected CRM in this role, or None."""
    crm = cloudlet.info.get(role) or {}
    if not crm.get("connected"):
        return None
    spec = CloudletSpec.model_validate(cloudlet.spec)
    return CrmAddress(
        cloudlet=cloudlet.path,
        version=crm["version"],
        notify_id=crm["notify_id"],
        transport=spec.transport,
        url=spec.url,
        probe=spec.patience.probe,
    )
