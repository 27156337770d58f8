"""The status of an MCI, computed from its VMs at each read and never stored."""

from __future__ import annotations

from collections.abc import Mapping

from domain.mci.tables import STATUS_TIE_ORDER, S, VmStatus

EMPTY_STATUS = "Empty"  # an MCI after `refine` has removed all of its VMs


def counts_by_status(counts: Mapping[str, int]) -> dict[VmStatus, int]:
    """Counts VMs per status, in tie order; an unknown status counts as Undefined."""
    statuses = {status.value for status in STATUS_TIE_ORDER}
    tidy = dict.fromkeys(STATUS_TIE_ORDER, 0)
    for word, number in counts.items():
        tidy[VmStatus(word) if word in statuses else S.UNDEFINED] += number
    return tidy


def aggregate_status(phase: str, counts: Mapping[str, int]) -> str:
    """Returns the MCI's status: `Running:5 (R:5/5)`, `Partial-Running:3 (R:3/5)`, or the bare phase without VMs."""
    tidy = counts_by_status(counts)
    total = sum(tidy.values())
    if total == 0 and phase == S.RUNNING:
        return EMPTY_STATUS
    if total == 0 or (phase == S.FAILED and tidy[S.FAILED] == total):
        return phase
    dominant = max(STATUS_TIE_ORDER, key=lambda status: tidy[status])  # max keeps the first of equals
    partial = "" if tidy[dominant] == total else "Partial-"
    return f"{partial}{dominant}:{tidy[dominant]} (R:{tidy[S.RUNNING]}/{total})"


def status_count_info(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the source document's StatusCountInfo."""
    tidy = counts_by_status(counts)
    return {"countTotal": sum(tidy.values())} | {f"count{status}": number for status, number in tidy.items()}
