"""The skeleton of every action workflow: begin, perform, finish, whatever happens in between.

A family's workflow only implements what happens between begin and finish. Admission is the update `admit`, sent
together with the start; a plain start works as well. `preempt` ends the running action and continues as another one
under the same workflow ID, so that no third request can come in between.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate
from temporalio.exceptions import (
    ApplicationError,
    FailureError,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from activities.inventory import ActionWrites
    from activities.refusals import refused
    from domain import registry, wire
    from domain.errors import Category
    from domain.model import (
        Admission,
        Chunk,
        Done,
        Grant,
        Outcome,
        Progress,
        QueuedWorkflow,
        Refusal,
        Request,
        Result,
        Tally,
    )
    from domain.paths import kind_of
    from domain.requests import is_same_request, request_id_conflict, spec_digest
    from domain.statetable import Ruling
    from workflows import calls, measuring, summary
    from workflows.admission import ask_for_admission, why_misplaced
    from workflows.waitqueue import WaitQueue

T = TypeVar("T")
Spec = TypeVar("Spec", bound=BaseModel)

CHUNKS_AT_ONCE = 2  # per place: the next chunk uses free capacity while the last targets of one are awaited

PATH = SearchAttributeKey.for_keyword("ObjectPath")
KIND = SearchAttributeKey.for_keyword("ObjectKind")
ACTION = SearchAttributeKey.for_keyword("Action")
PHASE = SearchAttributeKey.for_keyword("Phase")
PROVIDERS = SearchAttributeKey.for_keyword_list("Providers")
PROGRESS = SearchAttributeKey.for_int("Progress")


class Failed(ApplicationError):
    """The work was tried and failed. `done` is its result; without it, `settle` decides."""

    def __init__(self, message: str, done: Done | None = None) -> None:
        super().__init__(message, type=wire.ACTION_FAILED, non_retryable=True)
        self.done = done


class Action(ABC):
    """One action on one object. A subclass is declared by `@action_workflow(NAME)`, and implements `perform`."""

    def __init__(self) -> None:
        self._request: Request | None = None
        self._examined: Request | None = None  # the request as `examine` returned it
        self._admission: Admission | None = None
        self._spec: BaseModel | None = None
        self._progress = Progress()
        self._successor: Request | None = None
        self._work: asyncio.Task[Done] | None = None
        self._ended = False
        self._cut_off = False
        self._providers: list[str] = []
        self._queue = WaitQueue()

    @abstractmethod
    async def perform(self, request: Request, grant: Grant) -> Done:
        """Does the work between begin and finish. Returns its result; raises `Failed` if it could not be done."""

    async def examine(self, request: Request) -> Request | Refusal:
        """Returns the request to carry out, or a refusal; called before admission, when nothing is stored yet."""
        return request

    async def settle(self, request: Request, grant: Grant) -> Done:
        """Undoes failed or cancelled work, or finds out what became of it. Returns the result."""
        return Done()

    async def announce(self, request: Request, outcome: Outcome) -> None:
        """Notifies other workflows after the end is stored. Nobody may rely on it, as a worker may die before."""
        return

    @workflow.update(name=wire.ADMIT)
    async def admit(self, request: Request) -> Admission:
        """Waits for the admission of the request that this run carries out, and returns it."""
        await workflow.wait_condition(lambda: self._admission is not None or self._ended)
        self._refuse_other_action(request)  # again: the validator may have run before the request was known
        if self._admission is None:
            raise refused(Refusal(category=Category.CONFLICT, message="cancelled before it was admitted"))
        return self._admission

    @admit.validator
    def _may_admit(self, request: Request) -> None:
        self._refuse_other_action(request)

    def _refuse_other_action(self, request: Request) -> None:
        """Refuses to answer a different request, even if it has the same request id."""
        if self._request and not is_same_request(request, self._request):
            raise refused(request_id_conflict(request, self._request.action, self._request.requested_by))

    @workflow.update(name=wire.PREEMPT)
    async def preempt(self, request: Request) -> str:
        """Ends the running action, lets it clean up, then continues as this request under the same workflow ID."""
        if refusal := await calls.run_local(ActionWrites.permit, request):
            raise refused(refusal)
        self._refuse_second_takeover()
        self._successor = request
        if self._work:
            self._work.cancel()
        await workflow.wait_condition(lambda: self._ended)
        return f"{request.action} takes over"

    @preempt.validator
    def _may_preempt(self, request: Request) -> None:
        self._refuse_second_takeover()
        if request.path != workflow.info().workflow_id or not registry.takes_over(request):
            message = "only force on the same object may take over, and never a creation"
            raise refused(Refusal(category=Category.INVALID, message=message))

    def _refuse_second_takeover(self) -> None:
        if self._successor:
            raise refused(
                Refusal(category=Category.CONFLICT, message=f"{self._successor.action} is taking over already")
            )

    @workflow.signal(name=wire.PASSED)
    def passed(self, waiter: QueuedWorkflow) -> None:
        """Signal: an action ahead in the wait queue has ended."""
        self._queue.passed += 1

    @workflow.query(name=wire.PROGRESS)
    def progress(self) -> Progress:
        """Query: returns the action's progress."""
        return self._progress

    async def carry_out(self, request: Request) -> Outcome:
        """Runs begin, perform and finish. Returns the outcome; raises if the request was refused, failed or was
        cancelled.

        A request that was promised to take over does so, whatever the end.
        """
        self._request = request
        self._progress = Progress(path=request.path, action=request.action)
        try:
            return await self._execute(request)
        except (FailureError, asyncio.CancelledError):
            await self._answer_everybody()
            raise

    async def _execute(self, request: Request) -> Outcome:
        examined = why_misplaced(request) or await self.examine(request)
        if isinstance(examined, Refusal):
            admission = Admission(refusal=examined)
        else:
            asking = ask_for_admission(examined, spec_digest(request))
            self._examined = request = examined
            admission, self._cut_off = await uninterrupted(asking)
        self._admission = admission
        if admission.refusal:
            measuring.count_refused(request, admission.refusal)
            raise refused(admission.refusal)
        if admission.outcome and admission.grant:  # the whole action was done while it was admitted
            return await self._end_run(measuring.count_ended(admission.outcome))
        if admission.outcome:  # the same request was made before: its outcome
            return await self._end_run(admission.outcome)
        assert admission.grant
        grant = admission.grant
        if grant.ruling is Ruling.ALREADY:
            return await self._end_run(measuring.count_ended(summary.nothing_to_do(grant)))
        self.show(phase=grant.during, targets=grant.targets)
        self._providers = summary.providers(grant)
        result, done = await self._run(request, grant)
        outcome, _ = await uninterrupted(calls.finish(grant, result, done))
        await uninterrupted(self.announce(request, outcome))
        return await self._end_run(measuring.count_ended(outcome))

    def show(self, **seen: Any) -> None:
        """Updates the progress: phase, step, targets, done, failed."""
        self._progress = self._progress.model_copy(update=seen)
        workflow.set_current_details(summary.progress_markdown(self._progress))

    def spec(self, model: type[Spec]) -> Spec:
        """Returns the spec of the request as it was admitted: begin has checked it, and it is parsed once."""
        if self._spec is None and self._examined:
            self._spec = model.model_validate(self._examined.spec or {})
        assert isinstance(self._spec, model)
        return self._spec

    async def for_each_chunk(self, grant: Grant, activity: calls.Activity[Chunk, Tally], patience: timedelta) -> None:
        """Runs an activity for every chunk: all places in parallel, a few chunks at a time in each."""
        rooms: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(CHUNKS_AT_ONCE))

        async def one(chunk: Chunk) -> None:
            async with rooms[chunk.placement]:
                what = f"{chunk.action} {chunk.count}"
                self._count(await calls.run_at(activity, chunk, chunk.placement, patience, what))

        ends = await asyncio.gather(*map(one, grant.chunks), return_exceptions=True)
        for end in ends:  # a failed place does not stop the others: all have ended by now
            if isinstance(end, BaseException):
                raise end

    async def _run(self, request: Request, grant: Grant) -> tuple[Result, Done]:
        """Runs the work as a task, so that `preempt` can cancel it. When this returns, nothing of it is in flight."""
        self._work = asyncio.create_task(self._wait_and_perform(request, grant))
        if self._successor or self._cut_off:  # the cancel came before the work began
            self._work.cancel()
        try:
            return Result.SUCCEEDED, await self._work
        except BaseException as error:
            if not is_cancelled_exception(error) and not isinstance(error, FailureError):
                raise  # a bug: the workflow task fails, and is retried once the bug is fixed
            cut_off = is_cancelled_exception(error) or self._was_cancelled(error)
            settled, _ = await uninterrupted(self._settle(request, grant, cut_off))  # may be cancelled too
            if cut_off:
                why = f"preempted by {self._successor.action}" if self._successor else "cancelled"
                return Result.CANCELLED, summary.with_reason(settled, why)
            if isinstance(error, Failed):
                left = error.done or settled
                unknown = {"message": settled.message} if settled.message.startswith(summary.UNKNOWN) else {}
                settled = left.model_copy(update={"failed": True, **unknown})
            return Result.FAILED, summary.with_reason(settled, summary.reason_of(error))

    def _was_cancelled(self, error: BaseException) -> bool:
        """Tells whether the work was cancelled; the activity of a worker that died meanwhile times out instead."""
        assert self._work
        return self._work.cancelling() > 0 and not isinstance(error, Failed)

    async def _wait_and_perform(self, request: Request, grant: Grant) -> Done:
        if grant.behind:
            self.show(step=f"waiting for {', '.join(sorted({holder.action for holder in grant.behind}))} to end")
            await self._queue.wait(grant.behind)
            self.show(step="")
        return await self.perform(request, grant)

    async def _settle(self, request: Request, grant: Grant, cut_off: bool) -> Done:
        # A cancel can arrive just after finish stored the end: the task is replayed differently, the store is not.
        if self._queue.waiting or (cut_off and await calls.has_ended()):
            return Done()
        try:
            return await self.settle(request, grant)
        except FailureError as error:
            unknown = f"{summary.UNKNOWN}: {summary.reason_of(error)}"
            workflow.logger.warning(unknown)
            return Done(message=unknown)

    async def _end_run(self, outcome: Outcome) -> Outcome:
        """Ends this run as the outcome says: completed, failed, cancelled, or continued as the successor."""
        seen = {"phase": outcome.status, "done": outcome.done, "failed": outcome.failed}
        self._progress = self._progress.model_copy(update=seen)
        await self._answer_everybody(outcome.followers)
        self._set_phase(100)
        if outcome.result is Result.CANCELLED:
            raise asyncio.CancelledError(outcome.message)
        if outcome.result is Result.FAILED:
            raise ApplicationError(summary.failure_of(outcome), outcome, type=wire.ACTION_FAILED, non_retryable=True)
        return outcome

    async def _answer_everybody(self, followers: list[str] | None = None) -> None:
        """Answers all who wait for the end, then continues as the request that takes over, if there is one."""
        self._ended = True
        await uninterrupted(self._queue.leave(followers or []))  # a cancel that comes now must not cut off the answers
        await uninterrupted(workflow.wait_condition(workflow.all_handlers_finished))
        if self._successor:
            _continue_as(self._successor)

    def _count(self, tally: Tally) -> None:
        before = summary.quarters(self._progress)
        self.show(done=self._progress.done + tally.done, failed=self._progress.failed + tally.failed)
        if before < summary.quarters(self._progress) < 4:
            self._set_phase(summary.quarters(self._progress) * 25)

    def _set_phase(self, percent: int) -> None:
        """Writes the search attributes that lists of workflows show. Each call costs an event and an index write."""
        seen = self._progress
        news: list[SearchAttributeUpdate[Any]] = [PHASE.value_set(seen.phase), PROGRESS.value_set(percent)]
        if self._providers:
            news.append(PROVIDERS.value_set(self._providers))
        if workflow.info().typed_search_attributes.get(PATH) is None:  # started without search attributes
            news += [PATH.value_set(seen.path), KIND.value_set(kind_of(seen.path)), ACTION.value_set(seen.action)]
        workflow.upsert_search_attributes(news)


ActionType = TypeVar("ActionType", bound=type[Action])


def action_workflow(name: str) -> Callable[[ActionType], ActionType]:
    """Declares an Action as the workflow of this name. Temporal wants `run` on the very class: it is made here."""

    def declare(action: ActionType) -> ActionType:
        async def run(self: Action, request: Request) -> Outcome:
            return await self.carry_out(request)

        del run.__annotations__["self"]  # else Temporal takes it for the first argument
        run.__module__, run.__qualname__ = action.__module__, f"{action.__qualname__}.run"
        action.run = workflow.run(run)  # type: ignore[attr-defined]
        return workflow.defn(name=name)(action)

    return declare


async def uninterrupted(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Awaits work that must not be cut off, as it may be stored already. Also tells whether a cancel came."""
    task, cut_off = asyncio.ensure_future(work), False
    while True:
        try:
            return await asyncio.shield(task), cut_off
        except asyncio.CancelledError:
            if task.done():
                raise
            cut_off = True


def _continue_as(request: Request) -> NoReturn:
    verb = registry.kind_at(request.path).verb(request.action)
    listed = workflow.info().typed_search_attributes.updated(SearchAttributePair(ACTION, request.action))
    workflow.continue_as_new(args=[request], workflow=verb.workflow, memo=wire.memo(request), search_attributes=listed)
