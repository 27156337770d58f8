"""Policies: an object that a user keeps, and beside it a workflow that follows demand and acts by normal actions."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from domain.edge import messages as wire
    from domain.edge.facts import PolicyQuestion
    from domain.edge.messages import Ignored, understood
    from domain.edge.policies import ON_BEHALF, Demand, Facts, Memory, Place, counted, heard, provision, scale
    from domain.edge.specs import AutoProvision, AutoScale, PolicySpec
    from domain.edge.tables import S
    from domain.limits import TASK_TIMEOUT
    from domain.model import Done, Grant, Model, Outcome, Request
    from domain.paths import name_of, parent_of, short
    from domain.wire import companion
    from workflows.action import Action
    from workflows.edge import calls
    from workflows.edge.cloudlet import act
    from workflows.shield import Informed


class LoopState(Model):
    """What a policy's workflow is about; carried over when its history grows long."""

    policy: str
    spec: PolicySpec
    memory: Memory = Memory()


class Changed(Model):
    """The policy has another spec now; without one it is over."""

    spec: PolicySpec | None = None


@workflow.defn(name=wire.KEEP_POLICY)
class KeepPolicy(Action):
    """Create, update and delete a policy. The work is done by the workflow beside it."""

    @workflow.run
    async def run(self, request: Request) -> Outcome:
        return await self.carry_out(request)

    async def perform(self, request: Request, grant: Grant) -> Done:
        if request.action == "delete":
            await self._tell(grant.path, Changed())
            return Done(message="what it made stays")
        spec = PolicySpec.model_validate(request.spec or {})
        if request.action == "create" or not await self._tell(grant.path, Changed(spec=spec)):
            await self._start(grant.path, spec)
        return Done(spec=spec.model_dump(mode="json", exclude_none=True))

    async def _tell(self, path: str, news: Changed) -> bool:
        try:
            loop = workflow.get_external_workflow_handle(companion(path, wire.LOOP))
            await loop.signal(wire.POLICY_CHANGED, news)
        except FailureError:
            return False
        return True

    async def _start(self, path: str, spec: PolicySpec) -> None:
        try:
            await workflow.start_child_workflow(
                wire.FOLLOW_DEMAND,
                LoopState(policy=path, spec=spec),
                id=companion(path, wire.LOOP),
                task_timeout=TASK_TIMEOUT,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                static_summary=f"follows demand for {short(path)}",
            )
        except WorkflowAlreadyStartedError:  # of a policy that was deleted a moment ago
            await self._tell(path, Changed(spec=spec))


@workflow.defn(name=wire.FOLLOW_DEMAND)
class FollowDemand(Informed):
    """Hears demand, and every interval does what the policy says about it."""

    OUTLIVES_BUILDS = True

    @workflow.init
    def __init__(self, state: LoopState) -> None:
        self._path = state.policy
        self._spec: PolicySpec | None = state.spec
        self._memory = state.memory
        self._changed = False

    @workflow.run
    async def run(self, state: LoopState) -> None:
        while self._spec:
            await self._tick(self._spec)
            interval = self._rule().interval if self._spec else 0
            self._changed = False
            try:
                await workflow.wait_condition(
                    lambda: self._changed, timeout=timedelta(seconds=interval), timeout_summary="until the next look"
                )
            except TimeoutError:
                self._end_interval()
            if self._spec and workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(LoopState(policy=self._path, spec=self._spec, memory=self._memory))
        await workflow.wait_condition(workflow.all_handlers_finished)

    @workflow.signal(
        name=wire.DEMAND, description="What was measured: clients of a cloudlet, or the load of a cluster."
    )
    async def demand(self, raw: Any = None) -> None:
        said = understood(Demand, raw)
        if isinstance(said, str):
            why = said
        else:
            assert isinstance(said, Demand)
            self._memory, why = heard(self._memory, said, self._sites())
        if why:
            await calls.ignore(Ignored(path=self._path, state=wire.DEMAND, reason=why, actor="Demand"))

    @workflow.signal(name=wire.POLICY_CHANGED)
    def policy_changed(self, news: Changed) -> None:
        self._spec, self._changed = news.spec, True

    @workflow.query
    def memory(self) -> Memory:
        """What the policy has seen so far."""
        return self._memory

    def _rule(self) -> AutoProvision | AutoScale:
        assert self._spec
        rule = self._spec.auto_provision or self._spec.auto_scale
        assert rule
        return rule

    def _sites(self) -> list[str]:
        rule = self._rule() if self._spec else None
        return [site.cloudlet for site in rule.cloudlets] if isinstance(rule, AutoProvision) else []

    def _end_interval(self) -> None:
        if self._spec and self._spec.auto_provision:
            self._memory = counted(self._spec.auto_provision, self._memory)

    async def _tick(self, spec: PolicySpec) -> None:
        if spec.auto_provision:
            await self._provision(spec.auto_provision)
        elif spec.auto_scale:
            await self._scale(spec.auto_scale)

    async def _provision(self, policy: AutoProvision) -> None:
        """First take away, then deploy: what is over the maximum makes room."""
        plan = provision(policy, self._memory, await self._facts())
        await asyncio.gather(*(self._place(policy, place, "delete") for place in plan.undeploy))
        await asyncio.gather(*(self._place(policy, place, "create") for place in plan.deploy))

    async def _place(self, policy: AutoProvision, place: Place, action: str) -> None:
        """Still meant? The world may have changed since the plan was made."""
        if not self._spec or self._spec.auto_provision != policy:
            return
        now = provision(policy, self._memory, await self._facts())
        wanted = now.deploy if action == "create" else now.undeploy
        if place.cloudlet not in [each.cloudlet for each in wanted]:
            return
        path = f"{self._org()}:cloudlet:{place.cloudlet}:cluster:{place.cluster}:app:{policy.app}"
        spec = policy.spec.model_dump(mode="json", exclude={"override"}) if action == "create" else None
        if why := await self._act(path, action, spec):
            self._memory = self._memory.model_copy(update={"failed": [*self._memory.failed, place.cloudlet]})
            await calls.ignore(Ignored(path=self._path, state=action, reason=f"{path}: {why}", actor="Policy"))

    async def _scale(self, policy: AutoScale) -> None:
        facts = await self._facts()
        if facts.cluster != S.READY:
            return  # not there, or something else is happening to it: look again next time
        nodes, self._memory = scale(policy, facts.nodes, self._memory, workflow.now().timestamp())
        if nodes == facts.nodes:
            return
        path = f"{self._org()}:cloudlet:{policy.cloudlet}:cluster:{policy.cluster}"
        if why := await self._act(path, "update", {"nodes": nodes}):
            await calls.ignore(Ignored(path=self._path, state="update", reason=f"{path}: {why}", actor="Policy"))

    async def _act(self, path: str, action: str, spec: dict[str, Any] | None) -> str:
        signed = f"{ON_BEHALF}{name_of(self._path)}"
        return await act(Request(path=path, action=action, spec=spec, requested_by=signed, reason="demand"))

    async def _facts(self) -> Facts:
        assert self._spec
        question = PolicyQuestion(
            policy=self._path, auto_provision=self._spec.auto_provision, auto_scale=self._spec.auto_scale
        )
        return await calls.facts(question)

    def _org(self) -> str:
        return str(parent_of(self._path))
