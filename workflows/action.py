"""The skeleton of every action workflow: begin, perform, finish, whatever happens in between.

A family's workflow only implements what happens between begin and finish. Admission is the update `admit`, sent
together with the start; a plain start works as well. `preempt` ends the running action and continues as another one
under the same workflow ID, so that no third request can come in between.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate
from temporalio.exceptions import (
    ApplicationError,
    FailureError,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from activities.inventory import ActionActivities
    from activities.refusals import refusal_as_error
    from domain import registry, wire
    from domain.errors import Category, Refused, format_one_line
    from domain.model import (
        ActionResult,
        Admission,
        Chunk,
        Grant,
        Move,
        Outcome,
        Progress,
        Refusal,
        Request,
        TargetCounts,
        WorkReport,
    )
    from domain.paths import kind_of
    from domain.requests import is_same_request, reused_request_id_refusal, spec_digest
    from domain.statetable import NO_STATUS, Actor, Ruling
    from domain.validation import describe_known_words
    from domain.waitqueue import QueuedWorkflow
    from workflows import calls, measuring, summary
    from workflows.admission import request_admission, why_wrong_workflow
    from workflows.waitqueue import QueueWaiter

T = TypeVar("T")
Spec = TypeVar("Spec", bound=BaseModel)

MESSAGES_KEPT = 10  # ignored messages that a run records in the history
CHUNKS_AT_ONCE = 2  # per place: the next chunk uses free capacity while the last targets of one are awaited

PATH_ATTRIBUTE = SearchAttributeKey.for_keyword("ObjectPath")
KIND_ATTRIBUTE = SearchAttributeKey.for_keyword("ObjectKind")
ACTION_ATTRIBUTE = SearchAttributeKey.for_keyword("Action")
PHASE_ATTRIBUTE = SearchAttributeKey.for_keyword("Phase")
PROVIDERS_ATTRIBUTE = SearchAttributeKey.for_keyword_list("Providers")
PROGRESS_ATTRIBUTE = SearchAttributeKey.for_int("Progress")


class WorkFailed(ApplicationError):
    """The work was tried and failed. `done` is its result; without it, `settle_work` decides."""

    def __init__(self, message: str, done: WorkReport | None = None) -> None:
        super().__init__(message, type=wire.ACTION_FAILED_ERROR_TYPE, non_retryable=True)
        self.done = done


class ActionWorkflow(ABC):
    """One action on one object. A subclass is declared by `@action_workflow(NAME)`, and implements `perform_work`."""

    def __init__(self) -> None:
        self._request: Request | None = None
        self._examined: Request | None = None  # the request as `examine` returned it
        self._admission: Admission | None = None
        self._spec: BaseModel | None = None
        self._progress = Progress()
        self._successor: Request | None = None
        self._work: asyncio.Task[WorkReport] | None = None
        self._ended = False
        self._cut_off = False
        self._is_withdrawn = False
        self._providers: list[str] = []
        self._queue = QueueWaiter()
        self._ignored = 0

    @abstractmethod
    async def perform_work(self, request: Request, grant: Grant) -> WorkReport:
        """Does the work between begin and finish. Returns its result; raises `WorkFailed` if it could not be done."""

    async def examine_request(self, request: Request) -> Request | Refusal:
        """Returns the request to carry out, or a refusal; called before admission, when nothing is stored yet."""
        return request

    async def settle_work(self, request: Request, grant: Grant) -> WorkReport:
        """Undoes failed or cancelled work, or finds out what became of it. Returns the result."""
        return WorkReport()

    async def notify_after_end(self, request: Request, outcome: Outcome) -> None:
        """Notifies other workflows after the end is stored. Nobody may rely on it, as a worker may die before."""
        return

    @workflow.update(name=wire.ADMIT_UPDATE)
    async def admit(self, request: Request) -> Admission:
        """Waits for the admission of the request that this run carries out, and returns it."""
        await workflow.wait_condition(lambda: self._admission is not None or self._ended)
        self._refuse_other_request(request)  # again: the validator may have run before the request was known
        if self._admission is None:
            raise refusal_as_error(
                Refusal(category=Category.CONFLICT, message="cancelled before it was admitted", hint="ask again")
            )
        return self._admission

    @admit.validator
    def _validate_admit(self, request: Request) -> None:
        self._refuse_other_request(request)

    def _refuse_other_request(self, request: Request) -> None:
        """Refuses to answer a different request, even if it has the same request id."""
        if self._request and not is_same_request(request, self._request):
            raise refusal_as_error(reused_request_id_refusal(request, self._request.action, self._request.requested_by))

    @workflow.update(name=wire.PREEMPT_UPDATE)
    async def preempt(self, request: Request) -> str:
        """Ends the running action, lets it clean up, then continues as this request under the same workflow ID."""
        if refusal := await calls.run_local_activity(ActionActivities.check_access, request):
            raise refusal_as_error(refusal)
        self._refuse_second_takeover()
        self._successor = request
        if self._work:
            self._work.cancel()
        await workflow.wait_condition(lambda: self._ended)
        return f"{request.action} takes over"

    @preempt.validator
    def _validate_preempt(self, request: Request) -> None:
        self._refuse_second_takeover()
        try:
            may_preempt = registry.may_preempt(request)
        except Refused as refused:
            raise refusal_as_error(Refusal.from_error(refused)) from refused
        if request.path != workflow.info().workflow_id or not may_preempt:
            message = "only force on the same object may take over, and never a creation"
            raise refusal_as_error(
                Refusal(category=Category.INVALID, message=message, hint="see: starter explain PATH")
            )

    def _refuse_second_takeover(self) -> None:
        if self._successor:
            raise refusal_as_error(
                Refusal(
                    category=Category.CONFLICT,
                    message=f"{self._successor.action} is taking over already",
                    hint=f"wait for it: starter wait {workflow.info().workflow_id}",
                )
            )

    @workflow.signal(name=wire.PASSED_SIGNAL)
    def passed(self, waiter: QueuedWorkflow) -> None:
        """Signal: an action ahead in the wait queue has ended."""
        self._queue.wake()

    @workflow.signal(dynamic=True, unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def unknown_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Takes a signal without a handler, and records that it was ignored: its sender knows only that it arrived."""
        known = [signal.name for signal in registry.find_kind(kind_of(workflow.info().workflow_id)).signals]
        await self.record_ignored_signal(f"{name}: this action takes no such signal{describe_known_words(name, known)}")

    async def record_ignored_signal(self, why: str) -> None:
        """Records a message in the object's history as ignored; of a flood, the first few."""
        self._ignored += 1
        grant = self._admission.grant if self._admission else None
        if grant and not self._ended and self._ignored <= MESSAGES_KEPT:
            await calls.move_objects(
                grant, [Move(path=grant.path, to=NO_STATUS, actor=Actor.USER, message=format_one_line(why))]
            )

    @workflow.query(name=wire.PROGRESS_QUERY)
    def progress(self) -> Progress:
        """Query: returns the action's progress."""
        return self._progress

    async def carry_out_request(self, request: Request) -> Outcome:
        """Runs begin, perform and finish. Returns the outcome; raises if the request was refused, failed or was
        cancelled.

        A request that was promised to take over does so, whatever the end.
        """
        self._request = request
        self._progress = Progress(path=request.path, action=request.action)
        try:
            return await self._admit_and_run(request)
        except (FailureError, asyncio.CancelledError):
            await self._answer_waiters()
            raise

    async def _admit_and_run(self, request: Request) -> Outcome:
        examined = why_wrong_workflow(request) or await self.examine_request(request)
        if isinstance(examined, Refusal):
            admission = Admission(refusal=examined)
        else:
            client = request_admission(examined, spec_digest(request))
            self._examined = request = examined
            admission, self._cut_off = await shield_from_cancel(client)
        self._admission = admission
        if admission.refusal:
            measuring.count_refused_request(request, admission.refusal)
            raise refusal_as_error(admission.refusal)
        if admission.outcome and admission.grant:  # the whole action was done while it was admitted
            return await self._end_run(measuring.count_ended_action(admission.outcome))
        if admission.outcome:  # the same request was made before: its outcome
            return await self._end_run(admission.outcome)
        assert admission.grant
        grant = admission.grant
        if grant.ruling is Ruling.ALREADY:
            return await self._end_run(measuring.count_ended_action(summary.outcome_of_no_work(grant)))
        self.update_progress(phase=grant.during, targets=grant.targets)
        self._providers = summary.list_called_clouds(grant)
        result, done = await self._run_work(request, grant)
        outcome, _ = await shield_from_cancel(calls.finish_action(grant, result, done))
        await shield_from_cancel(self.notify_after_end(request, outcome))
        return await self._end_run(measuring.count_ended_action(outcome))

    def update_progress(self, **seen: Any) -> None:
        """Updates the progress: phase, step, targets, done, failed."""
        self._progress = self._progress.model_copy(update=seen)
        workflow.set_current_details(summary.progress_markdown(self._progress))

    def spec(self, model: type[Spec]) -> Spec:
        """Returns the spec of the request as it was admitted: begin has checked it, and it is parsed once."""
        if self._spec is None and self._examined:
            self._spec = model.model_validate(self._examined.spec or {})
        assert isinstance(self._spec, model)
        return self._spec

    async def run_per_chunk(
        self, grant: Grant, activity: calls.Activity[Chunk, TargetCounts], patience: timedelta
    ) -> None:
        """Runs an activity for every chunk: all places in parallel, a few chunks at a time in each."""
        rooms: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(CHUNKS_AT_ONCE))

        async def one(chunk: Chunk) -> None:
            async with rooms[chunk.placement]:
                what = f"{chunk.action} {chunk.count}"
                self._add_tally_to_progress(
                    await calls.run_on_cloud_queue(activity, chunk, chunk.placement, patience, what)
                )

        ends = await asyncio.gather(*map(one, grant.chunks), return_exceptions=True)
        for end in ends:  # a failed place does not stop the others: all have ended by now
            if isinstance(end, BaseException):
                raise end

    async def _run_work(self, request: Request, grant: Grant) -> tuple[ActionResult, WorkReport]:
        """Runs the work as a task, so that `preempt` can cancel it. When this returns, nothing of it is in flight."""
        self._work = asyncio.create_task(self._wait_and_perform(request, grant))
        if self._successor or self._cut_off:  # the cancel came before the work began
            self._work.cancel()
        try:
            done = await self._work
            self._is_withdrawn = done.withdrawn
            return ActionResult.CANCELLED if done.withdrawn else ActionResult.SUCCEEDED, done
        except BaseException as error:
            if not is_cancelled_exception(error) and not isinstance(error, FailureError):
                raise  # a bug: the workflow task fails, and is retried once the bug is fixed
            cut_off = is_cancelled_exception(error) or self._was_cancelled(error)
            settled, _ = await shield_from_cancel(self._settle_safely(request, grant, cut_off))  # may be cancelled too
            if cut_off:
                why = f"preempted by {self._successor.action}" if self._successor else "cancelled"
                return ActionResult.CANCELLED, summary.prepend_reason(settled, why)
            if isinstance(error, WorkFailed):
                left = error.done or settled
                unknown = {"message": settled.message} if settled.message.startswith(summary.UNKNOWN_MESSAGE) else {}
                settled = left.model_copy(update={"failed": True, **unknown})
            return ActionResult.FAILED, summary.prepend_reason(settled, summary.error_text(error))

    def _was_cancelled(self, error: BaseException) -> bool:
        """Tells whether the work was cancelled; the activity of a worker that died meanwhile times out instead."""
        assert self._work
        return self._work.cancelling() > 0 and not isinstance(error, WorkFailed)

    async def _wait_and_perform(self, request: Request, grant: Grant) -> WorkReport:
        if grant.denied:
            raise WorkFailed(grant.denied)
        if grant.behind:
            self.update_progress(
                step=f"waiting for {', '.join(sorted({holder.action for holder in grant.behind}))} to end"
            )
            await self._queue.wait_for_holders(grant.behind)
            self.update_progress(step="")
        return await self.perform_work(request, grant)

    async def _settle_safely(self, request: Request, grant: Grant, cut_off: bool) -> WorkReport:
        # A cancel can arrive just after finish stored the end: the task is replayed differently, the store is not.
        if self._queue.waiting or (cut_off and await calls.has_run_ended()):
            return WorkReport()
        try:
            return await self.settle_work(request, grant)
        except FailureError as error:
            unknown = f"{summary.UNKNOWN_MESSAGE}: {summary.error_text(error)}"
            workflow.logger.warning(unknown)
            return WorkReport(message=unknown)

    async def _end_run(self, outcome: Outcome) -> Outcome:
        """Ends this run as the outcome says: completed, failed, cancelled, or continued as the successor."""
        seen = {"phase": outcome.status, "done": outcome.done, "failed": outcome.failed}
        self._progress = self._progress.model_copy(update=seen)
        await self._answer_waiters(outcome.followers)
        self._write_search_attributes(100)
        if outcome.result is ActionResult.CANCELLED and not self._is_withdrawn:  # Temporal cancelled no withdrawn run
            raise asyncio.CancelledError(outcome.message)
        if outcome.result is ActionResult.FAILED:
            raise ApplicationError(
                summary.failure_message(outcome), outcome, type=wire.ACTION_FAILED_ERROR_TYPE, non_retryable=True
            )
        return outcome

    async def _answer_waiters(self, followers: list[str] | None = None) -> None:
        """Answers all who wait for the end, then continues as the request that takes over, if there is one."""
        self._ended = True
        await shield_from_cancel(
            self._queue.notify_followers(followers or [])
        )  # a cancel that comes now must not cut off the answers
        await shield_from_cancel(workflow.wait_condition(workflow.all_handlers_finished))
        if self._successor:
            _continue_as_successor(self._successor)

    def _add_tally_to_progress(self, tally: TargetCounts) -> None:
        before = summary.count_done_quarters(self._progress)
        self.update_progress(done=self._progress.done + tally.done, failed=self._progress.failed + tally.failed)
        if before < summary.count_done_quarters(self._progress) < 4:
            self._write_search_attributes(summary.count_done_quarters(self._progress) * 25)

    def _write_search_attributes(self, percent: int) -> None:
        """Writes the search attributes that lists of workflows show. Each call costs an event and an index write."""
        seen = self._progress
        news: list[SearchAttributeUpdate[Any]] = [
            PHASE_ATTRIBUTE.value_set(seen.phase),
            PROGRESS_ATTRIBUTE.value_set(percent),
        ]
        if self._providers:
            news.append(PROVIDERS_ATTRIBUTE.value_set(self._providers))
        if workflow.info().typed_search_attributes.get(PATH_ATTRIBUTE) is None:  # started without search attributes
            news += [
                PATH_ATTRIBUTE.value_set(seen.path),
                KIND_ATTRIBUTE.value_set(kind_of(seen.path)),
                ACTION_ATTRIBUTE.value_set(seen.action),
            ]
        workflow.upsert_search_attributes(news)


ActionType = TypeVar("ActionType", bound=type[ActionWorkflow])


def action_workflow(name: str) -> Callable[[ActionType], ActionType]:
    """Declares an action as the workflow of this name. Temporal wants `run` on the very class: it is made here."""

    def declare(action: ActionType) -> ActionType:
        async def run(self: ActionWorkflow, request: Request) -> Outcome:
            return await self.carry_out_request(request)

        del run.__annotations__["self"]  # else Temporal takes it for the first argument
        run.__module__, run.__qualname__ = action.__module__, f"{action.__qualname__}.run"
        action.run = workflow.run(run)  # type: ignore[attr-defined]
        return workflow.defn(name=name)(action)

    return declare


async def shield_from_cancel(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Awaits work that must not be cut off, as it may be stored already. Also tells whether a cancel came."""
    task, cut_off = asyncio.ensure_future(work), False
    while True:
        try:
            return await asyncio.shield(task), cut_off
        except asyncio.CancelledError:
            if task.done():
                raise
            cut_off = True


def _continue_as_successor(request: Request) -> NoReturn:
    verb = registry.verb_of(request)
    listed = workflow.info().typed_search_attributes.updated(SearchAttributePair(ACTION_ATTRIBUTE, request.action))
    workflow.continue_as_new(
        args=[request], workflow=verb.workflow, memo=wire.request_memo(request), search_attributes=listed
    )
