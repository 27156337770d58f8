"""Systems: a deploy costs what its subtree costs, however large the system; siblings against bare workflows.

Run: python3 run.py bench systems
"""

from __future__ import annotations

import asyncio
from typing import Any

from bench.stack import BenchStack, measure_in_turns, print_comparison, print_table_head, rig, run

DEPTH = 6
AT_ONCE = 100
TURNS = 8
RUN: dict[str, Any] = {"command": ["run"]}


def build_service_tree(services: int) -> tuple[dict[str, Any], str]:
    """Returns a tree of so many services, each at this depth, and the path of one of them."""
    width = 1
    while width ** (DEPTH - 1) * 10 < services:
        width += 1
    left = services

    def grow(level: int) -> dict[str, Any]:
        nonlocal left
        parts: list[dict[str, Any]] = []
        while left and len(parts) < (10 if level == DEPTH else width):
            if level == DEPTH:
                left -= 1
                parts.append({"name": f"s{len(parts)}", **RUN})
            else:
                parts.append({"name": f"n{len(parts)}", **grow(level + 1)})
        return {"parts": parts}

    return grow(1), ":".join(["n0"] * (DEPTH - 1) + ["s0"])


async def create_deployed_system(rig: BenchStack, name: str, services: int) -> str:
    """Creates and deploys a system. Returns the path of one of its leaves."""
    path, (definition, leaf) = f"system:{name}", build_service_tree(services)
    await rig.do(path, "create", {"backend": "simulated"})
    outcome = await rig.do(path, "deploy", {"definition": definition})
    assert outcome.result == "succeeded", outcome
    return f"{path}:{leaf}"


async def measure_leaf_deploy(rig: BenchStack) -> None:
    """Measures the same deploy of one leaf in a small and in a large system."""
    small, large = await create_deployed_system(rig, "small", 10), await create_deployed_system(rig, "large", 1_000)

    def version(path: str, n: int) -> Any:
        return rig.do(path, "deploy", {"definition": {"command": ["run", str(n)]}})

    in_small, in_large = await measure_in_turns(TURNS, lambda n: version(small, n), lambda n: version(large, n))
    print_table_head(f"Deploy of one leaf at depth {DEPTH}", "1,000 services", "10 services")
    print_comparison("from the request to stable", in_large * 1e3, in_small * 1e3, "{:.0f} ms", "<= 1.5")


async def measure_sibling_deploys(rig: BenchStack) -> None:
    """Measures a hundred concurrent deploys in one system against bare workflows with one activity."""
    path = "system:wide"
    await rig.do(path, "create", {"backend": "simulated"})
    await rig.do(path, "deploy", {"definition": {"parts": [{"name": f"s{n}", **RUN} for n in range(AT_ONCE)]}})

    async def ours(turn: int) -> None:
        spec = {"definition": {"command": ["run", str(turn)]}}
        outcomes = await asyncio.gather(*(rig.do(f"{path}:s{n}", "deploy", spec) for n in range(AT_ONCE)))
        assert {outcome.result for outcome in outcomes} == {"succeeded"}

    times = await measure_in_turns(
        4,
        ours,
        lambda turn: rig.run_bare_workflows(f"bare-{turn}", AT_ONCE),
        lambda turn: rig.run_many_same_steps(f"same-{turn}", AT_ONCE),
    )
    a, b, c = (AT_ONCE / seconds for seconds in times)
    print_table_head("Deploys per second, 100 siblings at once", "ours", "bare")
    print_comparison("deploys of one service (bare: workflow with one activity)", a, b, "{:.0f}/s", ">= 0.5 (goal 0.9)")
    print_comparison("the same steps and commits, nothing of ours", c, b, "{:.0f}/s", "told: the floor")


async def main() -> None:
    async with rig() as simulated:
        await measure_leaf_deploy(simulated)
        await measure_sibling_deploys(simulated)


if __name__ == "__main__":
    run(main())
