"""An action from the request to the outcome, on a real server."""

from __future__ import annotations

from domain.model import Request, Result
from starter.asking import Asking


def spec(size: int = 2, csps: tuple[str, ...] = ("aws", "gcp")) -> dict[str, object]:
    return {"subGroups": [{"name": f"g-{csp}", "subGroupSize": size, "csp": csp, "region": "r1"} for csp in csps]}


async def test_a_created_mci_runs(asking: Asking, ns: str) -> None:
    ticket = await asking.ask(Request(path=f"ns:{ns}:mci:web", action="create", spec=spec()))
    outcome = await asking.outcome(ticket.path, ticket.run)
    assert outcome.result is Result.SUCCEEDED
    assert outcome.status == "Running:4 (R:4/4)"
