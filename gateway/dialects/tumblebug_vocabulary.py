"""Tumblebug's two vocabularies: since 2026 an MCI is an infra, a VM a node, a subgroup a node group.

Handlers speak the old words only. A request in the new words is translated before, and its answer after.
"""

from __future__ import annotations

from typing import Any

NEW_OF_OLD = {
    "mci": "infra",
    "vm": "node",
    "subgroup": "nodegroup",
    "mciDynamic": "infraDynamic",
    "mciDynamicReview": "infraDynamicReview",
    "mciName": "infraName",
    "mciId": "infraId",
    "mciSubGroupAccessInfo": "infraNodeGroupAccessInfo",
    "mciVmAccessInfo": "infraNodeAccessInfo",
    "vmId": "nodeId",
    "vmName": "nodeName",
    "vmReviews": "nodeReviews",
    "vmUserName": "nodeUserName",
    "vmCreationErrors": "nodeCreationErrors",
    "masterVmId": "masterNodeId",
    "newVmList": "newNodeList",
    "numVMsToAdd": "numNodesToAdd",
    "subGroups": "nodeGroups",
    "subGroupId": "nodeGroupId",
    "subGroupSize": "nodeGroupSize",
    "subGroupDynamic": "nodeGroupDynamic",
    "subGroupDynamicReview": "nodeGroupDynamicReview",
    "totalVmCount": "totalNodeCount",
}
OLD_OF_NEW = {new: old for old, new in NEW_OF_OLD.items()}
_ROUTE_WORDS = ("infra", "infraDynamic", "infraDynamicReview")  # one of them is on every route of the new vocabulary


def uses_new_vocabulary(segments: list[str]) -> bool:
    """Tells whether a route is of the new vocabulary. Names of users' objects come after these words."""
    return any(word in segments[:4] for word in _ROUTE_WORDS)


def translate_route_to_old(segments: list[str]) -> list[str]:
    """Returns a route of the new vocabulary in the old words; users' names stay as they are."""
    return [
        OLD_OF_NEW.get(segment, segment) if _is_api_word(segments, at) else segment
        for at, segment in enumerate(segments)
    ]


def _is_api_word(segments: list[str], at: int) -> bool:
    """Tells whether a segment is a word of the API: ns, NS, [control,] word, name, word, name."""
    first = 3 if segments[2:3] == ["control"] else 2
    return at in (0, 2, first) or (at > first and (at - first) % 2 == 0)


def rename_keys(value: Any, words: dict[str, str]) -> Any:
    """Renames keys at every depth, and the types of resources; what users named, below `label`, stays."""
    if isinstance(value, dict):
        return {words.get(key, key): _rename_value(key, item, words) for key, item in value.items()}
    return [rename_keys(item, words) for item in value] if isinstance(value, list) else value


def _rename_value(key: str, value: Any, words: dict[str, str]) -> Any:
    if key == "label":
        return value
    return words.get(str(value), value) if key == "resourceType" else rename_keys(value, words)
