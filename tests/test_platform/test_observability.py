"""A worker's metrics, traces and logs, as their collectors receive them."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from client import launching
from domain import metrics
from domain.model import Request
from providers.sockets import find_free_port
from tests.patience import PATIENCE
from tests.test_platform.collector import Seen, collecting
from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import ROOT, Site, open_postgres_site
from tests.test_platform.unhurried import LONGEST_TASK

WEB = "ns:default:mci:web"
DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"
SAMPLE = re.compile(r"^([a-z_:]+)(?:\{(.*?)\})? ", re.MULTILINE)


@dataclass(frozen=True)
class Watched:
    """What was collected of a short story: create, a refusal, and a forced end over a running action."""

    metrics: str
    spans: list[Seen]
    logs: list[dict[str, Any]]

    def samples(self, name: str) -> list[dict[str, str]]:
        """The labels of every series of a name."""
        found = [labels for each, labels in SAMPLE.findall(self.metrics) if each == name]
        return [dict(re.findall(r'(\w+)="([^"]*)"', labels)) for labels in found]


@pytest.fixture(scope="module")
async def watched(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str, forkserver: ForkServer
) -> AsyncIterator[Watched]:
    with collecting() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "TASK_TIMEOUT", LONGEST_TASK)  # what is asked for here, too
        async with open_postgres_site(tmp_path_factory.mktemp("watched"), postgres_url, forkserver) as site:
            port, site.program = find_free_port(), "tests.test_platform.unhurried"
            site.environment["RATCHET_TRACES"] = collector.url
            async with site.worker(RATCHET_METRICS=f"127.0.0.1:{port}") as worker:
                await story(site)
                text = await asyncio.to_thread(fetch, f"http://127.0.0.1:{port}/metrics")
                worker.process.send_signal(15)  # type: ignore[arg-type]
                await worker.process.wait()
                lines = [json.loads(line) for line in worker.said().splitlines()]
            yield Watched(text, collector.spans, lines)


async def story(site: Site) -> None:
    created, said = await site.starter("mci", "create", "default/web", "-f", str(ROOT / "examples" / "mci-demo.yaml"))
    assert created == 0, said
    assert (await site.starter("mci", "resume", "default/web"))[0] == 3
    await site.hang("suspend", 600, "front-1")
    await site.ask(f"{WEB}:vm:front-1", "suspend")
    await site.until_hanging()
    forced = await site.asking.request_action(Request(path=WEB, action="terminate", force=True))
    await site.asking.wait_for_outcome(WEB, forced.run)


def fetch(url: str, seconds: float = PATIENCE) -> str:
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("name", [*metrics.COUNTER_HELP, *metrics.TIMER_HELP])
def test_everything_that_has_a_name_is_counted(watched: Watched, name: str) -> None:
    samples = watched.samples(metrics.prometheus_name(name))
    assert samples, name
    assert all(set(metrics.LABELS_OF_METRIC[name]) <= sample.keys() for sample in samples)


def test_actions_refusals_and_answers_are_told_apart(watched: Watched) -> None:
    def told(name: str, *labels: str) -> set[tuple[str, ...]]:
        return {tuple(sample[label] for label in labels) for sample in watched.samples(f"{name}_total")}

    assert told(metrics.ACTIONS, "kind", "action", "outcome") == {
        ("mci", "create", "succeeded"),
        ("vm", "suspend", "cancelled"),
        ("mci", "terminate", "succeeded"),
    }
    assert told(metrics.REFUSALS, "kind", "action", "category") == {("mci", "resume", "not_allowed")}
    assert ("aws", "eu-central-1", "create", "ok") in told(metrics.PROVIDER_CALLS, "csp", "region", "call", "outcome")
    assert told(metrics.HEALS, "result") == {("alive",), ("abandoned",)}


def test_the_sdk_s_own_metrics_are_there_too(watched: Watched) -> None:
    assert watched.samples("temporal_activity_execution_latency_seconds_count")
    assert watched.samples("temporal_workflow_completed_total")


def test_a_trace_leads_from_the_command_through_the_workflow_to_the_cloud(watched: Watched) -> None:
    known = {span.id: span for span in watched.spans}
    calls = [span for span in watched.spans if span.name == "aws create"]
    assert calls
    for call in calls:
        chain, at = [call.name], call
        while at.parent in known:
            at = known[at.parent]
            chain.append(at.name)
        assert chain[-1] == "starter mci create", chain
        assert {"RunActivity:operate_vms", "RunWorkflow:CreateMci"} <= set(chain), chain
        assert at.trace == call.trace


def test_log_lines_say_which_action_they_are_about(watched: Watched) -> None:
    ended = [line for line in watched.logs if line["event"] == "ended"]
    told = [(line["path"], line["action"], line["workflow"], line["result"]) for line in ended]
    assert (WEB, "create", "CreateMci", "succeeded") in told
    assert all(line["run"] for line in ended)
    assert [line["category"] for line in watched.logs if line["event"] == "refused"] == ["not_allowed"]


def expressions(found: object) -> list[str]:
    """Every query of a dashboard, however deep."""
    if isinstance(found, dict):
        own = [found["expr"]] if isinstance(found.get("expr"), str) else []
        return own + [expression for value in found.values() for expression in expressions(value)]
    return [expression for value in found for expression in expressions(value)] if isinstance(found, list) else []


def test_the_dashboard_asks_for_what_is_there(watched: Watched) -> None:
    there = {name for name, _ in SAMPLE.findall(watched.metrics)}
    asked: set[str] = set()
    for query in expressions(json.loads(DASHBOARD.read_text())):
        names = set(re.findall(r"\b((?:ratchet|temporal)_\w+)", query))
        assert names, query
        assert names <= there, names - there
        for name in names:
            labels = (
                set(re.findall(r"by \(([^)]*)\)", query)[0].replace(" ", "").split(",")) if "by (" in query else set()
            )
            assert labels - {"le"} <= set(watched.samples(name)[0]), (query, labels)
        asked |= names
    for name in (*metrics.COUNTER_HELP, *metrics.TIMER_HELP):
        assert any(each.startswith(name) for each in asked), f"the dashboard does not show {name}"


def test_a_metrics_address_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    from domain.errors import Refused
    from workers.settings import WorkerSettings
    from workers.telemetry import worker_runtime

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for address in (f"127.0.0.1:{taken.getsockname()[1]}", "nonsense"):
            with pytest.raises(Refused, match="metrics cannot be served") as caught:
                worker_runtime(WorkerSettings(home=tmp_path, metrics=address))
            assert "RATCHET_METRICS" in caught.value.hint
