"""Tumblebug's requests to create an MCI, translated to ours; and the review of one before it is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from domain import registry
from domain.errors import Category, Refused
from domain.mci.specs import MciSpec
from domain.model import Refusal
from domain.model import Request as ActionRequest
from gateway.dialects.calls import DialectCall
from gateway.dialects.regions import REGION_OF_CONNECTION, find_region

_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_UNKNOWN_COST = -1.0  # Tumblebug's own word for a price that it does not know
_POLICIES = {
    "continue": "VMs that were created stay when others fail",
    "rollback": "all VMs are removed when one fails",
    "refine": "VMs that failed are removed, the others stay",
}


def translate_mci_spec(body: Mapping[str, Any], option: str = "") -> dict[str, Any]:
    """Translates an MciDynamicReq to the spec of `create`. Refuses what would be silently ignored."""
    if option not in ("", "hold"):
        raise Refused(Category.INVALID, f"option: {option[:40]!r} is not known", "leave it out, or: hold")
    command = body.get("postCommand") or {}
    if not isinstance(command, dict) or command.get("command"):
        raise Refused(Category.INVALID, "postCommand: commands on VMs are not built here", "leave it out")
    if body.get("installMonAgent") not in (None, "", "no"):
        raise Refused(Category.INVALID, "installMonAgent: there is no monitoring agent here", "leave it out, or: no")
    groups = body.get("subGroups")
    if not isinstance(groups, list) or not groups or not all(isinstance(group, dict) for group in groups):
        raise Refused(Category.INVALID, "subGroups: a list of subgroups is needed")
    return {
        "description": str(body.get("description") or ""),
        "label": body.get("label") or {},
        "option": option,
        "policyOnPartialFailure": body.get("policyOnPartialFailure") or "continue",
        "subGroups": [_translate_subgroup_spec(group, at) for at, group in enumerate(groups)],
    }


def check_tumblebug_name(name: Any) -> str:
    """Returns a name as Tumblebug allows them; Refused otherwise."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refused(Category.INVALID, "name: a letter first, then letters, digits and dashes")
    return name


def parse_whole_number(text: Any, field: str) -> int:
    """Returns a number that Tumblebug sends as text; Refused, naming the field, if it is none."""
    digits = str(text) if isinstance(text, str | int) else ""
    if not _NUMBER.fullmatch(digits):
        raise Refused(Category.INVALID, f"{field}: a whole number from 1 to 999999 is needed")
    return int(digits)


def _translate_subgroup_spec(group: Mapping[str, Any], at: int) -> dict[str, Any]:
    where = f"subGroups[{at}]"
    if group.get("rootDiskSize") not in (None, "", "default", 0):
        raise Refused(Category.INVALID, f"{where}.rootDiskSize: disks have the size of the image here", "leave it out")
    for needed in ("specId", "imageId"):
        if not isinstance(group.get(needed), str) or not group[needed]:
            raise Refused(Category.INVALID, f"{where}.{needed}: is needed")
    spec = {
        "name": check_tumblebug_name(group.get("name") or f"g{at + 1}"),
        "subGroupSize": parse_whole_number(group.get("subGroupSize") or "1", f"{where}.subGroupSize"),
        "imageId": group["imageId"],
        "label": group.get("label") or {},
    }
    parts = group["specId"].split("+", 2)
    connection = str(group.get("connectionName") or "")
    if region := REGION_OF_CONNECTION.get(connection):
        place = {"csp": region.csp, "region": region.name}
    elif connection:
        place = {"connectionName": connection}
    elif len(parts) == 3:
        place = {"csp": parts[0], "region": parts[1]}
    else:
        raise Refused(Category.INVALID, f"{where}.connectionName: is needed, as specId does not name cloud and region")
    return {**spec, **place, "specId": parts[-1]}


async def review_creation(call: DialectCall, request: ActionRequest) -> dict[str, Any]:
    """Dry-runs a creation, and estimates its cost where prices are known."""
    spec, prices = registry.parse_spec(request), call.gateway.prices
    assert isinstance(spec, MciSpec)
    try:
        refusal = (await call.ratchet.check_request(request)).refusal
    except Refused as refused:  # such as a type of VM that the region does not have
        refusal = Refusal.from_error(refused)
    groups = [_review_group(group.model_dump(), prices) for group in spec.subGroups]
    costs = [group["cost"] for group in groups]
    unknown = [group["review"]["vmName"] for group in groups if group["cost"] is None]
    warnings = [f"no price is known for {name}" for name in unknown] if prices else []
    overall = "Error" if refusal else "Warning" if warnings else "Ready"
    message = refusal.message if refusal else "; ".join(warnings) or "the MCI can be created"
    total = "" if not prices else f"${sum(cost or 0.0 for cost in costs):.4f}/hour"
    return {
        "mciName": request.path.rsplit(":", 1)[-1],
        "totalVmCount": spec.vm_count,
        "creationViable": refusal is None,
        "overallStatus": overall,
        "overallMessage": message,
        "estimatedCost": total or "prices are not known",
        "policyOnPartialFailure": spec.policyOnPartialFailure,
        "policyDescription": _POLICIES[spec.policyOnPartialFailure],
        "policyRecommendation": "",
        "recommendations": [refusal.hint] if refusal and refusal.hint else [],
        "resourceSummary": {
            "totalProviders": len({group["review"]["providerName"] for group in groups}),
            "totalRegions": len({group["review"]["regionName"] for group in groups}),
            "uniqueSpecs": sorted({group["review"]["specValidation"]["resourceId"] for group in groups}),
            "uniqueImages": sorted({group["review"]["imageValidation"]["resourceId"] for group in groups}),
        },
        "vmReviews": [group["review"] for group in groups],
    }


def _review_group(group: Mapping[str, Any], prices: Mapping[str, float]) -> dict[str, Any]:
    region = find_region(group["csp"] or "", group["region"] or "")
    spec = f"{region.csp}+{region.name}+{group['specId']}"
    price = prices.get(spec)
    cost = None if price is None else price * group["subGroupSize"]
    warnings = [] if cost is not None or not prices else [f"no price is known for {spec}"]
    review = {
        "vmName": group["name"],
        "subGroupSize": str(group["subGroupSize"]),
        "status": "Warning" if warnings else "Ready",
        "canCreate": True,
        "message": "; ".join(warnings) or "can be created",
        "errors": [],
        "warnings": warnings,
        "info": [],
        "connectionName": group["connectionName"] or region.connection,
        "providerName": region.csp,
        "regionName": region.name,
        "estimatedCost": _UNKNOWN_COST if cost is None else f"${cost:.4f}/hour",
        "specValidation": {"resourceId": spec, "isAvailable": True, "status": "Available"},
        "imageValidation": {"resourceId": group["imageId"], "isAvailable": True, "status": "Available"},
    }
    return {"review": review, "cost": cost}
