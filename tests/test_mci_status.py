"""The status of an MCI, which is computed from its VMs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.mci.status import aggregate_status, status_count_info
from domain.mci.tables import MCI, STATUS_TIE_ORDER, VmStatus
from tests.cases import every_case

COUNTS = """
    CountTotal CountCreating CountRunning CountFailed CountSuspended CountRebooting CountTerminated CountSuspending
    CountResuming CountTerminating CountUndefined
"""


@every_case(
    ("counts", "shown"),
    [
        ({"Running": 5}, "Running:5 (R:5/5)"),
        ({"Running": 3, "Suspended": 2}, "Partial-Running:3 (R:3/5)"),
        ({"Suspended": 4, "Running": 1}, "Partial-Suspended:4 (R:1/5)"),
        ({"Terminated": 5}, "Terminated:5 (R:0/5)"),
        ({"Running": 10}, "Running:10 (R:10/10)"),
        ({"Suspended": 6, "Running": 4}, "Partial-Suspended:6 (R:4/10)"),
        ({"Failed": 2}, "Failed:2 (R:0/2)"),
        ({"Failed": 1, "Running": 2}, "Partial-Running:2 (R:2/3)"),
        ({"Running": 1, "Sleepwalking": 2}, "Partial-Undefined:2 (R:1/3)"),
        ({"Sleepwalking": 1, "Undefined": 1, "": 1}, "Undefined:3 (R:0/3)"),
        ({"Running": 2, "Failed": 0}, "Running:2 (R:2/2)"),
    ],
)
def test_the_status_of_an_mci_counts_its_vms(counts: dict[str, int], shown: str) -> None:
    assert aggregate_status("Running", counts) == shown


TIES = [
    *("Failed", "Suspended", "Running", "Terminated", "Creating"),
    *("Suspending", "Resuming", "Rebooting", "Terminating", "Undefined"),
]


def test_the_tie_order_is_the_rules_and_leaves_nothing_out() -> None:
    assert list(STATUS_TIE_ORDER) == TIES
    assert set(TIES) == set(VmStatus)


@every_case(("winner", "loser"), [(a, b) for n, a in enumerate(TIES) for b in TIES[n + 1 :]])
def test_a_tie_goes_to_the_earlier(winner: str, loser: str) -> None:
    for counts in ({winner: 2, loser: 2}, {loser: 2, winner: 2}):
        assert aggregate_status("Running", counts).startswith(f"Partial-{winner}:2 (R:")


@pytest.mark.parametrize("phase", ["Preparing", "Prepared", "Creating", "Failed"])
def test_without_vms_the_phase_stands_bare(phase: str) -> None:
    assert aggregate_status(phase, {}) == phase
    assert aggregate_status(phase, {"Running": 0}) == phase


def test_an_mci_without_vms_that_is_past_its_creation_is_empty() -> None:
    assert aggregate_status("Running", {}) == "Empty"


def test_a_create_in_which_every_vm_failed_is_bare_failed() -> None:
    assert aggregate_status("Failed", {"Failed": 3}) == "Failed"
    assert aggregate_status("Failed", {"Failed": 2, "Terminated": 1}) == "Partial-Failed:2 (R:0/3)"


words = st.one_of(st.sampled_from(TIES), st.text(max_size=12))


@settings(deadline=None)
@given(phase=st.sampled_from(MCI.statuses), counts=st.dictionaries(words, st.integers(0, 50), max_size=8))
def test_counts_always_add_up(phase: str, counts: dict[str, int]) -> None:
    total = sum(counts.values())
    info = status_count_info(counts)
    assert info["countTotal"] == total == sum(number for name, number in info.items() if name != "countTotal")
    shown = aggregate_status(phase, counts)
    if shown in (phase, "Empty"):
        assert total == 0 or (phase == "Failed" and info["countFailed"] == total)
        return
    match = re.fullmatch(r"(Partial-)?(\w+):(\d+) \(R:(\d+)/(\d+)\)", shown)
    assert match
    partial, dominant, number, running, of = match.groups()
    assert (int(running), int(of)) == (counts.get("Running", 0), total)
    assert int(number) == info[f"count{dominant}"] == max(info[f"count{status}"] for status in TIES)
    assert bool(partial) == (int(number) < total)


def test_the_counts_are_the_documents_fields() -> None:
    told = {name[0].lower() + name[1:] for name in COUNTS.split()}
    assert set(status_count_info({})) == told
