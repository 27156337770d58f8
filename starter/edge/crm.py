"""`starter crm`: runs the reference CRM, and sends answers in a CRM's place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from domain import registry
from domain.edge import messages as edge_messages
from domain.edge.faults import CrmFault, CrmFaults
from domain.edge.messages import MAX_ERROR_LENGTH, CrmResponse, IgnoredMessage, IgnoredMessages
from domain.edge.policies import cloudlet_of
from domain.edge.specs import DEFAULT_VERSION, crm_command_line
from domain.edge.tables import CLOUDLET, GONE_STATES
from domain.errors import Category, RatchetError, Refused
from domain.paths import expand_path, kind_of, short_path
from domain.services.definition import BackendName
from domain.statetable import NONE
from domain.validation import refuse_validation_errors
from domain.wire import companion_id
from starter import terminal
from starter.errors import ExitCode
from starter.kinds import ObjectArg, read_spec_file
from starter.session import open_client
from starter.stack import worker_settings
from starter.toplevel import RUNNING

if TYPE_CHECKING:
    from client.actions import ActionClient

app = App(name="crm", help="The CRM of a cloudlet: run one, or answer in its place.", group=RUNNING)

Cloudlet = Annotated[str, Parameter(help="Which cloudlet: org/name, or its path.")]
SCOPE = ("org", "cloudlet")


@app.command
async def run(
    *,
    cloudlet: Cloudlet,
    version: Annotated[str, Parameter(help="The version that this CRM is; by default the cloudlet's.")] = "",
    latency: Annotated[float, Parameter(help="Seconds that simulated work takes.")] = 0.3,
    faults: Annotated[str, Parameter(help="A YAML file with a fault script.")] = "",
    takeover: Annotated[str, Parameter(help="Of an upgrade: the version to end once this one can serve.")] = "",
    gateway: Annotated[str, Parameter(help="The URL of a gateway, for a CRM that does not reach Temporal.")] = "",
    backend: Annotated[BackendName, Parameter(help="What runs its apps.")] = "simulated",
) -> ExitCode:
    """Run the reference CRM of a cloudlet until Ctrl-C. What is on its platform stays, whatever happens to it.

    Example: starter crm run --cloudlet acme/berlin --version v2
    """
    from workers.crm import CrmOptions, serve_crm

    path = expand_path(cloudlet, SCOPE)
    script = _read_faults(faults) if faults else None
    version = version or ("v1" if gateway else await _read_crm_version(path))
    options = CrmOptions(path, version, latency, takeover, script, gateway, backend)
    return ExitCode(await serve_crm(worker_settings(), options))


@app.command
async def stop(*, cloudlet: Cloudlet) -> ExitCode:
    """End the CRM processes of a cloudlet on this machine, those of an upgrade included.

    Example: starter crm stop --cloudlet acme/berlin
    """
    from workers.crm import stop_crm_processes

    ended = await stop_crm_processes(worker_settings().home, expand_path(cloudlet, SCOPE))
    terminal.print_message(
        f"ended: {', '.join(map(str, ended))}" if ended else "no CRM of this cloudlet runs on this machine"
    )
    return ExitCode.DONE


@app.command
async def token(
    *,
    cloudlet: Cloudlet,
    new: Annotated[bool, Parameter(help="Make a new token, which replaces the present one.", negative="")] = False,
) -> ExitCode:
    """Print the public key of a CRM's token. The token itself is a file on this machine, made if there is none.

    Example: starter crm token --cloudlet acme/berlin
    """
    from workers.crm import token_of_cloudlet

    settings = worker_settings()
    own = token_of_cloudlet(settings, expand_path(cloudlet, SCOPE))
    if not new and not settings.crm_token_file and not settings.home.exists():  # another folder has its token, maybe
        message = f"there is no folder {settings.home.absolute()}, which would hold the token"
        hint = "run this where its CRM runs, or set RATCHET_HOME; to make a token here: --new"
        raise Refused(Category.NOT_FOUND, message, hint)
    made = new or not own.file.exists()
    terminal.print_data(own.create_token() if made else own.public_key())
    terminal.print_message(
        f"{'a new token is' if made else 'its token is'} in {own.file.absolute()}; only its key goes to others"
    )
    return ExitCode.DONE


@app.command
async def respond(
    path: ObjectArg,
    state: Annotated[str, Parameter(help="The state that the object is in now, such as Ready or CreateError.")],
    /,
    *,
    error: Annotated[list[str] | None, Parameter(help="What went wrong; may be given several times.")] = None,
    notify_id: Annotated[int, Parameter(help="The connection to answer for; the current one by default.")] = 0,
    task: Annotated[int, Parameter(help="Progress: number of the current task.")] = 0,
    of: Annotated[int, Parameter(help="Progress: number of tasks.")] = 0,
    step: Annotated[str, Parameter(help="Progress: name of the current task.")] = "",
    dry_run: Annotated[bool, Parameter(help="Print the message, and send nothing.", negative="")] = False,
) -> ExitCode:
    """Send the signal that a CRM would send. It starts nothing: without a running action it is recorded as ignored.

    It is signed with the token of the CRM that runs on this machine, if there is one.

    Example: starter crm respond acme/berlin/c1/shop Ready
    """
    target = path if ":" in path else _expand_names(path)
    _check_answer(target, state, error or [])
    async with open_client() as client:
        progress = {"progress": {"task": task, "of": of, "step": step}} if of or step else {}
        current = notify_id or await _current_notify_id(client, target)
        message = {"state": state, "errors": error or [], "notify_id": current, **progress}
        message = await _sign_message(client, target, message)
        if dry_run:
            terminal.print_data(json.dumps(message))
            return ExitCode.DONE
        heard = await _deliver_answer(client, target, message)
    terminal.print_message(f"{heard}: {state} for {short_path(target)}, notify-id {message['notify_id']}")
    return ExitCode.DONE


def _expand_names(text: str) -> str:
    """Expands names with slashes: two are a cloudlet's, three a cluster's, four an app's."""
    kinds = {2: "cloudlet", 3: "cluster", 4: "app"}
    kind = kinds.get(text.count("/") + 1)
    if kind is None:
        example = "acme/berlin/c1/shop"
        raise Refused(Category.INVALID, f"{text[:80]!a} names no cloudlet, cluster or app", f"write it like {example}")
    return expand_path(text, registry.find_kind(kind).scope)


def _check_answer(path: str, state: str, errors: list[str]) -> None:
    table = registry.kind_at(path).table
    known = (*table.statuses, *GONE_STATES)
    if kind_of(path) not in ("cloudlet", "cluster", "app"):
        raise Refused(
            Category.INVALID, f"a CRM has nothing to say about {path}", "name a cloudlet, a cluster or an app"
        )
    if state not in known:
        raise Refused(Category.INVALID, f"unknown state {state[:40]!r} for {table.label}", f"it is {', '.join(known)}")
    if sum(map(len, errors)) > MAX_ERROR_LENGTH:
        raise Refused(
            Category.INVALID,
            f"errors of {sum(map(len, errors))} characters: at most {MAX_ERROR_LENGTH} are kept",
            "shorten them",
        )


async def _read_crm_version(cloudlet: str) -> str:
    """Returns the version that the cloudlet's CRM should be; the usual one for a cloudlet that is not created yet."""
    try:
        async with open_client() as client:
            return str((await client.read_object(cloudlet)).spec.get("version") or DEFAULT_VERSION)
    except RatchetError as error:  # a CRM may be started before the cloudlet, or before the workers
        if not (isinstance(error, Refused) and error.category is Category.NOT_FOUND):
            terminal.print_message(f"the cloudlet's version cannot be read, {DEFAULT_VERSION} is assumed: {error}")
        return DEFAULT_VERSION


async def _current_notify_id(client: ActionClient, path: str) -> int:
    """Returns the notify-id of the connected CRM."""
    cloudlet = cloudlet_of(path)
    view = await client.read_object(cloudlet)
    crm = view.info.get("crm") or {}
    if not crm.get("notify_id"):
        raise Refused(
            Category.NOT_ALLOWED,
            f"no CRM was ever connected to {cloudlet}",
            crm_command_line(cloudlet, view.spec),
        )
    return int(crm["notify_id"])


async def _sign_message(client: ActionClient, path: str, message: dict[str, Any]) -> dict[str, Any]:
    """Adds the proof that a cloudlet with a key requires: for this object and its running action."""
    from workers.crm import token_of_cloudlet

    own = token_of_cloudlet(worker_settings(), cloudlet_of(path))
    if not own.exists():
        return message
    try:
        view = await client.read_object(path)
        epoch = {"epoch": view.epoch} if view.target_action != NONE else {}
    except Refused:  # no such object: recorded as ignored
        epoch = {}
    return own.sign_message(edge_messages.CRM_RESPONSE, path, {**message, **epoch})


async def _deliver_answer(client: ActionClient, path: str, message: dict[str, Any]) -> str:
    """Sends the message to the object's action, else to the cloudlet's link; else records it as ignored."""
    link = companion_id(cloudlet_of(path), edge_messages.LINK_ROLE)
    heard = await _signal_workflow(client, path, message)
    if heard is SignalResult.TAKEN:
        return "sent"
    if await _signal_workflow(client, link, {"path": path, **message}) is SignalResult.TAKEN:
        ignored = heard is SignalResult.NOBODY and kind_of(path) != CLOUDLET.kind
        return "no action runs there: kept as ignored" if ignored else "sent to its link"
    late = IgnoredMessage(path=path, state=message["state"], reason="no action is running on it")
    await client.run_query(
        edge_messages.CRM_LATE, IgnoredMessages(messages=[late], at=datetime.now(UTC)), IgnoredMessages
    )
    return "no action runs there: kept as ignored"


class SignalResult(Enum):
    """What became of a signal."""

    TAKEN = "taken"
    NOBODY = "nobody"  # no workflow runs there
    FULL = "full"  # the run has reached Temporal's limit of signals


async def _signal_workflow(client: ActionClient, workflow_id: str, message: dict[str, Any]) -> SignalResult:
    from temporalio.service import RPCError, RPCStatusCode

    CrmResponse.model_validate(message)
    try:
        await client.client.get_workflow_handle(workflow_id).signal(edge_messages.CRM_RESPONSE, message)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return SignalResult.NOBODY
        if edge_messages.SIGNAL_LIMIT_ERROR in error.message:
            return SignalResult.FULL
        raise
    return SignalResult.TAKEN


def _read_faults(file: str) -> tuple[CrmFault, ...]:
    with refuse_validation_errors("the fault script is not valid", "there is an example in examples/crm-faults.yaml"):
        return tuple(CrmFaults.model_validate(read_spec_file(file)).faults)
