"""The alert rules ask for metrics that exist, and fire for a worker that is really stuck."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from domain import metrics
from providers.sockets import find_free_port
from tests.patience import PATIENCE
from tests.test_platform.site import ROOT, Site
from tests.test_platform.test_observability import WEB, fetch

RULES_FILE = ROOT / "deploy" / "alerts.yaml"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
}
THRESHOLD = re.compile(r"(min|max)\((\w+)\) ([<>]) (\d+)")


def fires(alert: str, text: str, limit: float | None = None) -> bool:
    """Evaluates a rule about a gauge on what a worker serves; with another limit than the rule's, if given."""
    over, name, sign, number = THRESHOLD.fullmatch(RULES[alert]["expr"]).groups()  # type: ignore[union-attr]
    values = [float(value) for value in re.findall(rf"^{name}(?:{{.*?}})? (\S+)$", text, re.MULTILINE)]
    assert values, f"{name} is not served"
    value, bound = (min if over == "min" else max)(values), float(number) if limit is None else limit
    return value > bound if sign == ">" else value < bound


def served_names() -> set[str]:
    timers = {f"{name}_seconds{end}" for name in metrics.TIMER_HELP for end in ("_bucket", "_sum", "_count")}
    return {*timers, *(f"{name}_total" for name in metrics.COUNTER_HELP), *metrics.GAUGE_HELP}


@pytest.mark.parametrize("alert", RULES)
def test_every_rule_asks_for_metrics_that_exist_and_says_what_to_do(alert: str) -> None:
    asked = set(re.findall(r"ratchet_\w+", RULES[alert]["expr"]))
    assert asked <= served_names()
    assert asked or 'up{job="ratchet-worker"}' in RULES[alert]["expr"]
    assert len(RULES[alert]["annotations"]["summary"]) > 20


def test_promtool_accepts_the_rules() -> None:
    if not (promtool := shutil.which("promtool")):
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    ran = subprocess.run([promtool, "check", "rules", str(RULES_FILE)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_latencies_have_buckets_up_to_an_hour() -> None:
    assert max(metrics.LATENCY_BUCKETS) == 3_600
    assert sum(bound > 10 for bound in metrics.LATENCY_BUCKETS) >= 5


async def test_the_rules_fire_for_a_worker_that_is_really_stuck(site: Site) -> None:
    port = find_free_port()
    async with site.worker(RATCHET_METRICS=f"127.0.0.1:{port}"):

        async def served() -> str:
            return await asyncio.to_thread(fetch, f"http://127.0.0.1:{port}/metrics")

        async def until(true: Callable[[str], bool]) -> None:
            async with asyncio.timeout(3 * PATIENCE):
                while not true(await served()):
                    await asyncio.sleep(0.5)

        created, said = await site.starter(
            "mci", "create", "default/web", "-f", str(ROOT / "examples" / "mci-demo.yaml")
        )
        assert created == 0, said
        assert 'ratchet_action_latency_seconds_bucket{action="create",kind="mci"' in await served()
        assert re.search(r'ratchet_action_latency_seconds_bucket\{[^}]*le="3600"\}', await served())
        await until(lambda text: "ratchet_open_actions" in text and not fires("RatchetActionStuck", text, 0))
        await site.hang("suspend", 600, "front-1")
        await site.ask(f"{WEB}:vm:front-1", "suspend")
        await site.until_hanging()
        await until(lambda text: fires("RatchetActionStuck", text, 3) and fires("RatchetActionsPileUp", text, 0))
        others = ("RatchetStoreUnreachable", "RatchetActionsPileUp")
        await until(lambda text: not any(fires(alert, text) for alert in others))
        await site.asking.cancel_action(f"{WEB}:vm:front-1")
        await until(lambda text: not fires("RatchetActionStuck", text, 0))
