"""Actions on ClusterInst and AppInst: create, update, delete, recreate, and the removal of an orphan.

The CRM does the work and answers; the state table decides what each answer does.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain.edge import messages
    from domain.edge.messages import CrmProgress, CrmResponse, CrmVerb, join_errors
    from domain.edge.reports import InstanceGrantDetails
    from domain.edge.tables import ERROR_STATUS_OF, CrmActor, S
    from domain.errors import format_count, format_one_line
    from domain.model import Grant, Move, Request, WorkReport
    from domain.statetable import NONE
    from workflows.action import WorkFailed, action_workflow
    from workflows.calls import move_objects
    from workflows.edge.exchange import CrmExchange, CrmFailed
    from workflows.edge.inbox import CrmInboxAction

# The CRM's order for each action, the order that undoes it, and the status after the undo.
_CRM_VERB_OF_ACTION = {
    **dict.fromkeys(("create", "recreate"), CrmVerb.CREATE),
    "update": CrmVerb.UPDATE,
    **dict.fromkeys(("delete", "discard"), CrmVerb.DELETE),
}
_UNDO_OF_VERB = {
    CrmVerb.CREATE: (CrmVerb.DELETE, NONE),
    CrmVerb.UPDATE: (CrmVerb.UPDATE, S.READY),
    CrmVerb.DELETE: (CrmVerb.CREATE, S.READY),
}

MISSING_MESSAGE = "its cloudlet does not have it: missing; recreate it or delete it"


@action_workflow(messages.CHANGE_INSTANCE)
class ChangeInstance(CrmInboxAction):
    """One change of one instance. Deleting a cluster may delete its apps first."""

    def __init__(self) -> None:
        super().__init__()
        self._exchange: CrmExchange | None = None
        self._missing = False
        self._apps: dict[str, CrmExchange] = {}  # apps of a cluster that are being deleted

    async def perform_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        terms = InstanceGrantDetails.model_validate(grant.details)
        await self.require_proof(terms.key, grant.epoch)
        if request.action == "delete" and terms.address:
            await self._delete_apps(grant, terms)
            await move_objects(grant, [Move(path=grant.path, to=S.DELETE_REQUESTED)])
        if terms.address is None:
            return await self._change_without_crm(grant, terms)
        try:
            return await self._change_with_crm(request, grant, terms)
        except CrmFailed as failed:
            if terms.tolerant:
                return WorkReport(
                    message=format_one_line(f"the CRM's error was ignored: {failed}"), spec=terms.spec or None
                )
            assert self._exchange
            self._exchange.status, self._missing = failed.to, failed.missing
            await move_objects(
                grant, [Move(path=grant.path, to=failed.to, actor=failed.actor, message=format_one_line(str(failed)))]
            )
            raise WorkFailed(str(failed)) from failed

    async def settle_with_crm(self, request: Request, grant: Grant) -> WorkReport:
        """Undoes the change: the CRM reverts it, and the object moves as its state table says."""
        await asyncio.gather(*(self._restore_app(grant, app, exchange) for app, exchange in self._apps.items()))
        exchange = self._exchange
        if exchange is None or exchange.status == S.DELETE_PREPARE:
            return _report_unsent_change(grant)
        if grant.came_from == grant.then == NONE:  # an orphan: it is not made again
            return WorkReport()
        if error := ERROR_STATUS_OF.get(exchange.status):
            exchange.status = error
            await move_objects(grant, [Move(path=grant.path, to=error, message="cut off")])
        verb, wanted = _UNDO_OF_VERB[_CRM_VERB_OF_ACTION[request.action]]
        if self._missing:  # there is nothing to undo
            return WorkReport(moves=[Move(path=grant.path, to=wanted, message=MISSING_MESSAGE, info={"missing": True})])
        self.update_progress(phase=exchange.status, step="undo: the CRM cleans up")
        note = await exchange.undo_and_wait(verb, wanted)
        return WorkReport(message=note, moves=[Move(path=grant.path, to=wanted, message=note or "undone")])

    async def _change_with_crm(self, request: Request, grant: Grant, terms: InstanceGrantDetails) -> WorkReport:
        assert terms.address
        verb = _CRM_VERB_OF_ACTION[request.action]
        status = S.DELETE_REQUESTED if verb is CrmVerb.DELETE else grant.during
        self._exchange = CrmExchange(self, grant, grant.path, status, terms, terms.address)
        self._exchange.on_progress = self._show_status
        said = await self._exchange.request_and_wait(verb, getattr(terms.patience, verb.value))
        return WorkReport(moves=[_landing_move(grant.path, said, terms)])

    async def _change_without_crm(self, grant: Grant, terms: InstanceGrantDetails) -> WorkReport:
        gone = [Move(path=app, to=to, action="delete") for to in (S.DELETE_PREPARE, NONE) for app in terms.apps]
        if gone and not (stepped := await move_objects(grant, gone)).made:
            raise WorkFailed(f"its apps could not be deleted: {join_errors(stepped.refusals)}")
        return WorkReport(message="the CRM was not told", spec=terms.spec or None)

    async def _delete_apps(self, grant: Grant, terms: InstanceGrantDetails) -> None:
        """Deletes the apps of a cluster first, in parallel; if one stays, so does the cluster."""
        if not terms.apps:
            return
        self.update_progress(step=f"deleting {format_count(len(terms.apps), 'app')} first")
        prepared = [Move(path=app, to=S.DELETE_PREPARE, action="delete") for app in terms.apps]
        stepped = await move_objects(grant, [*prepared, *(Move(path=app, to=S.DELETE_REQUESTED) for app in terms.apps)])
        if not stepped.made:
            raise WorkFailed(f"its apps cannot be deleted: {join_errors(stepped.refusals)}")
        ends = await asyncio.gather(*(self._delete_app(grant, terms, app) for app in terms.apps))
        if errors := [f"{app}: {why}" for app, why in zip(terms.apps, ends, strict=True) if why]:
            raise WorkFailed(f"{len(errors)} of its apps could not be deleted: {join_errors(errors)}")

    async def _delete_app(self, grant: Grant, terms: InstanceGrantDetails, app: str) -> str:
        """Deletes one app. Returns the error, or an empty string."""
        assert terms.address
        own = terms.model_copy(update={"spec": terms.apps[app], "before": terms.apps[app]})
        self._apps[app] = exchange = CrmExchange(self, grant, app, S.DELETE_REQUESTED, own, terms.address)
        try:
            note = (await exchange.request_and_wait(CrmVerb.DELETE, terms.patience.delete)).joined_errors()
        except CrmFailed as failed:
            if not terms.tolerant:
                why = format_one_line(str(failed))
                await move_objects(grant, [Move(path=app, to=failed.to, actor=failed.actor, message=why)])
                exchange.status = failed.to
                await self._restore_app(grant, app, exchange, why)
                del self._apps[app]
                return why
            note = format_one_line(f"the CRM's error was ignored: {failed}")
        await move_objects(grant, [Move(path=app, to=NONE, actor=CrmActor.CRM, message=note)])
        del self._apps[app]
        return ""

    async def _restore_app(self, grant: Grant, app: str, exchange: CrmExchange, why: str = "cut off") -> None:
        """Brings an app whose delete failed, or was cut off, back to Ready."""
        if exchange.status != S.DELETE_ERROR:
            exchange.status = S.DELETE_ERROR
            await move_objects(grant, [Move(path=app, to=S.DELETE_ERROR, message=why)])
        note = await exchange.undo_and_wait(CrmVerb.CREATE, S.READY)
        await move_objects(grant, [Move(path=app, to=S.READY, message=note or "undone", error=why)])

    def _show_status(self, status: str, progress: CrmProgress | None) -> None:
        seen = {"step": progress.describe(), "done": progress.task, "targets": progress.of} if progress else {}
        self.update_progress(phase=status, **seen)


def _report_unsent_change(grant: Grant) -> WorkReport:
    """Returns the end of an action that was cut off before the CRM was asked: a new object is removed again."""
    if grant.during != S.CREATE_REQUESTED:
        return WorkReport()
    return WorkReport(moves=[Move(path=grant.path, to=to, message="cut off") for to in (S.CREATE_ERROR, NONE)])


def _landing_move(path: str, said: CrmResponse, terms: InstanceGrantDetails) -> Move:
    """Returns the last move, by the CRM's answer; it also stores the new spec."""
    if said.status == NONE:
        return Move(path=path, to=NONE, actor=CrmActor.CRM)
    runtime = said.storable_runtime()
    last = said.progress.model_dump() if said.progress else None
    info = {"missing": None, **({"runtime": runtime} if runtime else {}), **({"progress": last} if last else {})}
    return Move(
        path=path,
        to=S.READY,
        actor=CrmActor.CRM,
        message=format_one_line(said.joined_errors()),
        info=info,
        spec=terms.spec,
    )
