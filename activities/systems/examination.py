"""Why the worker that runs a system's services will not: begin refuses then, in real and in dry runs."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity
from temporalio.client import ActivityFailureError, Client

from activities.pollers import PollerCheck
from domain import registry
from domain.errors import Category, Refused, Rejected, join_first_texts
from domain.model import Request
from domain.paths import ancestor_paths, short_path
from domain.ports import Inventory
from domain.services.ports import Backend
from domain.systems.ports import READ_OBJECTIONS, DefinitionCheck, ServiceObjections, backend_queue
from domain.systems.specs import DeploySpec, SystemSpec, walk_nodes

ANSWER_TIMEOUT = timedelta(seconds=5)  # for a backend's worker, as a user waits
SERVICES_SHOWN = 5


class BackendRuleActivities:
    """What the worker of one backend does not allow."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @activity.defn
    async def read_objections(self, check: DefinitionCheck) -> ServiceObjections:
        """Returns which services of a deploy this worker does not allow, and why."""
        assert check.request  # the guard refuses a call without
        spec = registry.parse_spec(check.request)
        return ServiceObjections(objections=await find_objections(self._backend, check.request.path, spec))


async def find_objections(backend: Backend, path: str, spec: object) -> list[str]:
    """Returns which services of a deploy the backend of this worker does not allow, and why."""
    assert isinstance(spec, DeploySpec)
    objections: list[str] = []
    for at, node in walk_nodes(path, spec.definition):
        if not node.is_system:
            try:
                await backend.check_service(node)
            except Rejected as rejected:
                objections.append(f"{short_path(at)}: {rejected}")
    return objections


@dataclass(eq=False)
class SystemExaminer:
    """Finds out whether a system's backend will do what is requested.

    `backends` are those that do not allow everything. `own` are the queues of this process; what the workers of another
    queue allow, only they know.
    """

    client: Client
    inventory: Inventory
    backends: Mapping[str, Backend]
    own: Collection[str]

    async def check_backend_served(self, request: Request) -> None:
        """Refuses a new system that would wait for a worker that is not there. Temporal forgets one after minutes."""
        try:
            spec = registry.parse_spec(request)
        except Refused:  # begin says so
            return
        assert isinstance(spec, SystemSpec)
        queue = backend_queue(spec.backend)
        if await PollerCheck(self.client, self.own).queues_without_workers([queue]):
            why = f"no worker serves the backend {spec.backend!r}: nothing was changed"
            hint = f"start one where RATCHET_BACKENDS has it: starter worker --queues {queue}"
            raise Refused(Category.NOT_ALLOWED, why, hint)

    async def check_services_allowed(self, request: Request) -> None:
        """Refuses services that could never start: the worker of their backend does not list what they run."""
        root = next(iter(ancestor_paths(request.path)), request.path)
        try:
            spec = registry.parse_spec(request)
            name = str((await self.inventory.read_object(root)).spec.get("backend"))
        except Refused:  # begin says so
            return
        backend = self.backends.get(name)
        if backend is None:
            return
        if backend_queue(name) in self.own:
            objections = await find_objections(backend, request.path, spec)
        else:
            objections = await self._ask_worker_of_backend(name, request)
        if objections:
            why = f"{join_first_texts(objections, SERVICES_SHOWN)}: nothing was changed"
            hint = f"list it there, and start the workers of {backend_queue(name)} again; or deploy what is listed"
            raise Refused(Category.NOT_ALLOWED, why, hint)

    async def _ask_worker_of_backend(self, backend: str, request: Request) -> list[str]:
        try:
            answer: ServiceObjections = await self.client.execute_activity(
                READ_OBJECTIONS,
                DefinitionCheck(request=request),
                id=f"{READ_OBJECTIONS}-{uuid.uuid4().hex[:12]}",
                task_queue=backend_queue(backend),
                result_type=ServiceObjections,
                schedule_to_close_timeout=ANSWER_TIMEOUT,
            )
        except ActivityFailureError:  # no answer in time is no objection: the start of each service is judged again
            return []
        return answer.objections
