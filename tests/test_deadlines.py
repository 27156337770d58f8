"""Every call to Temporal, a provider or a URL has a deadline: nothing hangs because somebody does not answer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYERS = ("activities", "client", "gateway", "providers", "starter", "workers")

# A call -> the arguments that may be its deadline, by name.
KEYWORDS = {
    "urlopen": ("timeout",),
    "AsyncClient": ("timeout",),
    "execute_activity": ("schedule_to_close_timeout", "start_to_close_timeout"),
    "query": ("rpc_timeout",),
}
CONNECTS = ("create_connection",)  # its second argument is the deadline
# A call that waits for a workflow or a peer -> it stands within a block or a call that ends it.
WAITS = ("execute_update", "execute_update_with_start_workflow", "execute_workflow", "result", "open_connection")
ENDED_BY = ("run_with_timeout", "await_answer", "timeout", "timeout_at")
REASONS = {
    "activities/edge/crm.py:deliver_by_update": "an activity: its own timeout ends it",
    "client/outcomes.py:_wait_for_run": "waits for an action, which may take hours: --timeout and Ctrl-C end it",
    "client/actions.py:run_sweep": "waits for a sweep, which may take long: Ctrl-C ends the waiting",
    "client/admission.py:_raise_refused_payload": "the run is closed",
    "client/admission.py:_admission_of_ended_run": "the run is closed",
    "client/admission.py:wait_for_admission": "the coroutine is made here and awaited in await_answer",
    "client/reading.py:_exchange": "its only caller has a timeout",
    "client/takeover.py:_send_preempt": "its only caller has a timeout",
    "providers/services/proxy.py:connect_to_route": "to this machine: it is accepted or refused at once",
    "starter/machines/queue.py:one": "waits for what is in a queue: Ctrl-C ends the waiting",
    "starter/mci/requests.py:run_survey": "waits for a survey; its calls to the clouds have deadlines",
    "workers/logs.py:execute_activity": "an interceptor, which passes the call on",
    "workers/plugin.py:execute_activity": "an interceptor, which passes the call on",
    "starter/systems/demo.py:_get_page": "the demo's own service, on this machine",
}


def calls_of(module: ast.Module) -> Iterator[tuple[str, str, ast.Call, bool]]:
    """Each call: the function that it is in, its name, itself, and whether something around it ends it."""

    def walk(node: ast.AST, function: str, ended: bool) -> Iterator[tuple[str, str, ast.Call, bool]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.AsyncWith):
            ended = ended or any(
                name_of_call(item.context_expr) in ENDED_BY
                for item in node.items
                if isinstance(item.context_expr, ast.Call)
            )
        if isinstance(node, ast.Call):
            yield function, name_of_call(node), node, ended
            ended = ended or name_of_call(node) in ENDED_BY
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function, ended)

    yield from walk(module, "", ended=False)


def name_of_call(call: ast.expr) -> str:
    func = call.func if isinstance(call, ast.Call) else call
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def lacks_deadline(name: str, call: ast.Call, ended: bool) -> bool:
    if name in KEYWORDS:
        return all(word.arg not in KEYWORDS[name] for word in call.keywords)
    if name in CONNECTS:
        return len(call.args) < 2 and all(word.arg != "timeout" for word in call.keywords)
    return name in WAITS and not ended and isinstance(call.func, ast.Attribute)


def endless_calls(text: str, file: str) -> set[str]:
    module = ast.parse(text)
    awaited = {id(part) for node in ast.walk(module) if isinstance(node, ast.Await) for part in ast.walk(node)}
    return {
        f"{file}:{function}"
        for function, name, call, ended in calls_of(module)
        if lacks_deadline(name, call, ended) and (name != "result" or id(call) in awaited)
    }


def test_every_call_that_somebody_else_must_answer_has_a_deadline() -> None:
    found = {
        place
        for layer in LAYERS
        for file in sorted((ROOT / layer).rglob("*.py"))
        for place in endless_calls(file.read_text(), file.relative_to(ROOT).as_posix())
    }
    assert found - set(REASONS) == set()
    assert set(REASONS) - found == set(), "it has one now, or is gone"


def test_a_call_without_a_deadline_is_found() -> None:
    endless = "async def ask():\n    await handle.execute_update('x')\n    urlopen('http://x')\n"
    ending = "async def ask():\n    await run_with_timeout(5, handle.execute_update(1))\n    urlopen(1, timeout=1)\n"
    assert endless_calls(endless, "a.py") == {"a.py:ask"}
    assert endless_calls(ending, "a.py") == set()
