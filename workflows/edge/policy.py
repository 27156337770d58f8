"""Policies: the actions on a policy object, and its companion, which follows demand by normal actions."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.edge.crm import EdgeActivities
    from domain.edge import messages
    from domain.edge.budgets import READING_TASK_TIMEOUT, IgnoredMessageBudget
    from domain.edge.messages import IgnoredMessage, parse_message
    from domain.edge.policies import (
        DemandSignal,
        PolicyFacts,
        PolicySite,
        PolicyState,
        apply_demand_signal,
        build_app_path,
        build_cluster_path,
        plan_provisioning,
        plan_scaling,
        skip_failed_site,
        update_streaks,
    )
    from domain.edge.reports import PolicyFactsQuery
    from domain.edge.specs import AutoProvision, AutoScale, PolicySpec
    from domain.edge.tables import S
    from domain.limits import SIGNALS_PER_TASK
    from domain.model import ActionResult, FrozenModel, Grant, Outcome, Request, WorkReport
    from domain.paths import short_path
    from domain.wire import REFUSED_ERROR_TYPE, companion_id
    from workflows.action import ActionWorkflow, action_workflow
    from workflows.calls import filter_allowed_messages, run_child_action, run_local_activity
    from workflows.edge import calls
    from workflows.edge.floodlimit import FloodLimitedWorkflow


class PolicyLoopState(FrozenModel):
    """The input of a policy's companion; carried over when it continues as new."""

    policy: str
    spec: PolicySpec
    principal: str = ""  # for whom it acts
    memory: PolicyState = PolicyState()
    until: datetime | None = None  # the end of the interval in which the last run continued as new
    budget: IgnoredMessageBudget = IgnoredMessageBudget()


@action_workflow(messages.KEEP_POLICY)
class KeepPolicy(ActionWorkflow):
    """Creates, updates and deletes a policy. Its companion does the work."""

    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        if request.action == "delete":
            return WorkReport(message="what it made stays")
        return WorkReport(spec=self.spec(PolicySpec).model_dump(mode="json", exclude_none=True))

    async def notify_after_end(self, request: Request, outcome: Outcome) -> None:
        """Wakes or starts the companion after the change is stored; it reads the policy from the inventory."""
        if (
            outcome.result is not ActionResult.SUCCEEDED
            or await self._signal_companion(request.path)
            or request.action == "delete"
        ):
            return
        await self._start_companion(request.path, self.spec(PolicySpec))

    async def _signal_companion(self, path: str) -> bool:
        try:
            await workflow.get_external_workflow_handle(companion_id(path, messages.LOOP_ROLE)).signal(
                messages.POLICY_CHANGED
            )
        except FailureError:
            return False
        return True

    async def _start_companion(self, path: str, spec: PolicySpec) -> None:
        try:
            await workflow.start_child_workflow(
                messages.FOLLOW_DEMAND,
                PolicyLoopState(policy=path, spec=spec),
                id=companion_id(path, messages.LOOP_ROLE),
                task_timeout=READING_TASK_TIMEOUT,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                static_summary=f"follows demand for {short_path(path)}",
            )
        except WorkflowAlreadyStartedError:  # a sweep has just started it
            await self._signal_companion(path)


@workflow.defn(name=messages.FOLLOW_DEMAND)
class FollowDemand(FloodLimitedWorkflow):
    """The companion of a policy: it collects demand, and at every interval does what the policy decides."""

    @workflow.init
    def __init__(self, state: PolicyLoopState) -> None:
        if not workflow.info().continued_run_id:  # whoever may start workflows has no say in what a policy remembers
            state = PolicyLoopState(policy=state.policy, spec=state.spec)
        super().__init__(state.policy, state.budget, "Demand")
        self._spec: PolicySpec | None = state.spec
        self._principal = state.principal
        self._memory = state.memory
        self._until = state.until
        self._may_have_changed = state.until is None  # may the policy have changed?
        self._changed = False
        self._unjudged: list[tuple[int, DemandSignal]] = []
        self._judging = False

    @workflow.run
    async def run(self, state: PolicyLoopState) -> None:
        if workflow.info().workflow_id != companion_id(self._path, messages.LOOP_ROLE):
            message = "the ID of a policy's loop is the path of the policy and ::loop"
            raise ApplicationError(message, type=REFUSED_ERROR_TYPE, non_retryable=True)
        while spec := await self._read_policy_unless_gone():
            if self._until is None:
                self._changed = False
                await self._apply_rule_while_watching(spec)
                rule = spec.auto_provision or spec.auto_scale
                assert rule
                self._until = workflow.now() + timedelta(seconds=rule.interval)
            if await self._wait_for_interval() and self._spec and self._spec.auto_provision:
                self._memory = update_streaks(self._spec.auto_provision, self._memory)
            self._until, self._may_have_changed = None, True

    async def _read_policy_unless_gone(self) -> PolicySpec | None:
        """Returns the stored policy; None if it is gone, and no signal that came says otherwise."""
        while (spec := await self._read_policy()) is None:
            await workflow.wait_condition(workflow.all_handlers_finished)
            if not self._may_have_changed:
                break
        return spec

    async def _read_policy(self) -> PolicySpec | None:
        """Returns the stored policy, or None if it is gone. It is read again whenever it may have changed.

        Anybody can send the signal that it has changed, so the signal alone changes nothing.
        """
        await self._flush_ignored_messages()
        while self._may_have_changed:
            self._may_have_changed = False
            stored = await run_local_activity(EdgeActivities.read_policy, self._path)
            if stored.changing:  # the changing action signals when its change is stored
                break
            self._changed = self._changed or stored.spec != self._spec
            self._spec, self._principal = stored.spec, stored.principal
        return self._spec

    async def _apply_rule_while_watching(self, spec: PolicySpec) -> None:
        """Carries out the policy's plan; meanwhile it reads policy changes, and continues as new if full."""
        look = asyncio.ensure_future(self._apply_policy_rule(spec))
        while not look.done():
            await workflow.wait_condition(
                lambda: (
                    look.done()
                    or self._may_have_changed
                    or bool(self._to_ignore)
                    or bool(self._spec and self._must_continue_as_new())
                )
            )
            await self._read_policy()
            await self._continue_before_limit()
        look.result()

    async def _wait_for_interval(self) -> bool:
        """Waits until the interval ends or the policy changes. Returns True if the interval has ended."""
        while self._until and not self._changed:
            left = self._until - workflow.now()
            if left <= timedelta(0):
                return True
            try:
                await workflow.wait_condition(
                    lambda: self._may_have_changed or bool(self._to_ignore) or self._must_continue_as_new(),
                    timeout=left,
                    timeout_summary="until the next look",
                )
            except TimeoutError:
                return True
            await self._read_policy()
            await self._continue_before_limit()
        return False

    async def _continue_before_limit(self) -> None:
        """Continues as new before Temporal's signal limit; the interval goes on where it is."""
        if not self._must_continue_as_new() or not self._spec:
            return
        await self._record_ignored_count(messages.DEMAND_SIGNAL)
        if self._to_ignore or not workflow.all_handlers_finished():
            return  # more came meanwhile
        state = PolicyLoopState(
            policy=self._path,
            spec=self._spec,
            principal=self._principal,
            memory=self._memory,
            until=None if self._changed else self._until,
            budget=self._budget,
        )
        workflow.continue_as_new(state, task_timeout=READING_TASK_TIMEOUT)

    @workflow.signal(
        name=messages.DEMAND_SIGNAL, description="What was measured: clients of a cloudlet, or the load of a cluster."
    )
    async def demand(self, raw: Any = None) -> None:
        self._heard += 1
        message = parse_message(DemandSignal, raw)
        if isinstance(message, str):
            self._queue_ignored_message(messages.DEMAND_SIGNAL, message)
            return
        self._unjudged.append((self._heard, message))
        if not self._judging:  # a flood is judged in bulk, by the handler of its first signal
            await self._judge_demand()

    async def _judge_demand(self) -> None:
        """Counts the measurements whose senders may send them; the others are lines of the history."""
        self._judging = True
        while self._unjudged:
            batch, self._unjudged = self._unjudged[:SIGNALS_PER_TASK], self._unjudged[SIGNALS_PER_TASK:]
            allowed = await filter_allowed_messages(messages.DEMAND_SIGNAL, batch)
            for number, message in batch:
                if number in allowed:
                    self._count_demand(message)
        self._judging = False

    def _count_demand(self, message: DemandSignal) -> None:
        rule = self._spec.auto_provision if self._spec else None
        sites = [site.cloudlet for site in rule.cloudlets] if rule else []
        self._memory, why = apply_demand_signal(self._memory, message, sites)
        if why:
            self._queue_ignored_message(messages.DEMAND_SIGNAL, why)

    @workflow.signal(name=messages.POLICY_CHANGED, description="Look in the inventory: the policy may have changed.")
    def policy_changed(self, raw: Any = None) -> None:
        self._heard += 1
        self._may_have_changed = True

    @workflow.query
    def memory(self) -> PolicyState:
        """Query: returns what the policy remembers so far."""
        return self._memory

    async def _apply_policy_rule(self, spec: PolicySpec) -> None:
        if spec.auto_provision:
            await self._provision_app(spec.auto_provision)
        elif spec.auto_scale:
            await self._scale_cluster(spec.auto_scale)

    async def _provision_app(self, policy: AutoProvision) -> None:
        """Undeploys first, then deploys, so that sites over the maximum make room. Failed sites are replaced."""
        while True:
            before = self._memory.failed
            plan = plan_provisioning(policy, self._memory, await self._read_policy_facts(auto_provision=policy))
            await asyncio.gather(*(self._change_site(policy, place, "delete") for place in plan.undeploy))
            await asyncio.gather(*(self._change_site(policy, place, "create") for place in plan.deploy))
            if self._changed or set(self._memory.failed) <= set(before):
                return

    async def _change_site(self, policy: AutoProvision, place: PolicySite, action: str) -> None:
        """Deploys or undeploys the app at one site, if a new plan still says so."""
        if not self._spec or self._spec.auto_provision != policy:
            return
        now = plan_provisioning(policy, self._memory, await self._read_policy_facts(auto_provision=policy))
        wanted = now.deploy if action == "create" else now.undeploy
        if place.cloudlet not in [site.cloudlet for site in wanted]:
            return
        path = build_app_path(self._path, place.cloudlet, place.cluster, policy.app)
        spec = policy.spec.model_dump(mode="json", exclude={"override"}) if action == "create" else None
        if why := await self._run_action(path, action, spec):
            self._memory = skip_failed_site(self._memory, place.cloudlet)
            await calls.record_ignored_messages(
                IgnoredMessage(path=self._path, state=action, reason=f"{path}: {why}", actor="Policy")
            )

    async def _scale_cluster(self, policy: AutoScale) -> None:
        facts = await self._read_policy_facts(auto_scale=policy)
        if facts.cluster != S.READY:
            return  # missing or in transition: check again at the next interval
        nodes, self._memory = plan_scaling(policy, facts.nodes, self._memory, workflow.now().timestamp())
        if nodes == facts.nodes:
            return
        path = build_cluster_path(self._path, policy.cloudlet, policy.cluster)
        if why := await self._run_action(path, "update", {"nodes": nodes}):
            await calls.record_ignored_messages(
                IgnoredMessage(path=self._path, state="update", reason=f"{path}: {why}", actor="Policy")
            )

    async def _run_action(self, path: str, action: str, spec: dict[str, Any] | None) -> str:
        by = {"requested_by": self._path, "on_behalf_of": self._principal}
        return await run_child_action(Request(path=path, action=action, spec=spec, reason="demand", **by))

    async def _read_policy_facts(
        self, auto_provision: AutoProvision | None = None, auto_scale: AutoScale | None = None
    ) -> PolicyFacts:
        asked = PolicyFactsQuery(policy=self._path, auto_provision=auto_provision, auto_scale=auto_scale)
        return await run_local_activity(EdgeActivities.read_policy_facts, asked)
