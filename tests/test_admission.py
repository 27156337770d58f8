"""A workflow whose type or ID does not belong to the request's path and action is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError

from activities.refusals import refusal_of_error
from domain import registry, wire
from domain.errors import Category
from domain.model import Refusal, Request
from domain.paths import build_path
from domain.requests import reused_request_id_refusal
from tests.cases import every_case
from tests.patience import is_late_task
from tests.user import User
from workflows import admission

VERBS = [(kind, verb) for kind in registry.KINDS.values() for verb in kind.verbs]
TYPES = sorted({verb.workflow for _, verb in VERBS})
STARTED_AND_ENDED = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
}


def path_of(kind: registry.Kind, name: str = "x") -> str:
    return build_path(kind.scope, [name for _ in kind.scope])


def judged(monkeypatch: pytest.MonkeyPatch, request: Request, workflow: str, workflow_id: str) -> Refusal | None:
    """What a run of that type under that ID says to the request."""
    info = SimpleNamespace(workflow_type=workflow, workflow_id=workflow_id)
    monkeypatch.setattr("temporalio.workflow.info", lambda: info)
    return admission.why_wrong_workflow(request)


@every_case("workflow", TYPES)
def test_only_the_type_that_an_action_has_may_carry_it_out(monkeypatch: pytest.MonkeyPatch, workflow: str) -> None:
    for kind, verb in VERBS:
        request = Request(path=path_of(kind), action=verb.action)
        refusal = judged(monkeypatch, request, workflow, registry.workflow_id_of(request.path, request.action))
        if workflow == verb.workflow:
            assert refusal is None, (kind.name, verb.action)
        else:
            assert refusal, (kind.name, verb.action)
            assert refusal.message == f"{workflow} does not {verb.action} {request.path}, but {verb.workflow} does"
            assert refusal.hint == f"start it with the workflow type {verb.workflow}"


@every_case(("kind", "verb"), VERBS, ids=lambda each: getattr(each, "name", getattr(each, "action", "")))
def test_an_action_runs_under_its_own_id_and_no_other(
    monkeypatch: pytest.MonkeyPatch, kind: registry.Kind, verb: registry.Verb
) -> None:
    request = Request(path=path_of(kind), action=verb.action)
    owner = registry.workflow_id_of(request.path, request.action)
    for other in (path_of(kind, "y"), f"{request.path}:more", wire.companion_id(request.path, "other"), "text"):
        refusal = judged(monkeypatch, request, verb.workflow, other)
        assert refusal
        assert refusal.message == f"the workflow ID must be the object's path: {owner}"


@pytest.mark.parametrize("workflow", TYPES)
async def test_a_run_of_the_wrong_type_ends_before_anything_is_done(client: Client, user: User, workflow: str) -> None:
    """Started by hand, with an action of its own kind if there is one of another type, and with force."""
    own = next(kind for kind, verb in VERBS if verb.workflow == workflow)
    foreign = [(kind, verb) for kind, verb in VERBS if verb.workflow != workflow]
    kind, verb = next((each for each in foreign if each[0] is own), foreign[0])
    path = path_of(kind, f"{user.ns}-{workflow}")
    request = {"path": path, "action": verb.action, "force": True}
    owner = registry.workflow_id_of(path, verb.action)
    handle = await client.start_workflow(workflow, request, id=owner, task_queue=wire.ACTIONS_QUEUE)
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    refusal = refusal_of_error(failure.value.cause)
    assert refusal
    told = f"{workflow} does not {verb.action} {path}, but {verb.workflow} does"
    assert (refusal.category, refusal.message) == (Category.INVALID, told)
    events = [event for event in (await handle.fetch_history()).events if not is_late_task(event)]
    assert {event.event_type for event in events} == STARTED_AND_ENDED


@pytest.mark.parametrize(
    ("action", "requested_by", "was"),
    [
        ("suspend", "me", "suspend"),
        ("resume", "me", "resume with another spec"),
        ("suspend", "you", "suspend by somebody else"),
    ],
)
def test_a_request_id_that_was_used_says_for_what(action: str, requested_by: str, was: str) -> None:
    request = Request(path="ns:default:mci:web", action="resume", requested_by="me", request_id="r-1")
    refusal = reused_request_id_refusal(request, action, requested_by)
    assert refusal.message == f"this id was used for {was} on ns:default:mci:web: r-1"
