"""OpenvCloud's cloudapi, as libcloud's driver `gig_g8` speaks it: machines, cloudspaces, disks, images.

Every call is a POST of a JSON object, or null. Ids are numbers, errors a JSON text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, HTTPException, Request
from starlette.responses import JSONResponse, Response

from domain.aliases import Dialect
from domain.errors import Category, Refused
from domain.machines.sizes import SIZES
from domain.machines.tables import BIN_STATUSES, GONE_STATUSES
from domain.model import ActionResult, ObjectView, Outcome
from domain.model import Request as ActionRequest
from domain.paths import kind_of, name_of, root_of
from gateway.context import ErrorTranslatingRoute
from gateway.dialects.apps import DialectErrorFormat, ErrorAnswer, build_dialect_app, failure_status
from gateway.dialects.calls import Call, DialectCall, read_json_body
from gateway.dialects.g8_json import GIB, LOCATION, PRIVATE_NETWORK, G8Ids, account_json, size_json
from gateway.dialects.g8_json import SHAPE_OF_KIND as SHAPES

MOUNT = "/restmachine"
_RESTARTS = ("reboot", "reset")  # a machine that was restarted can be restarted again at once
MAX_DIGITS = 18  # of a number; Python refuses to read thousands
# Parts of the API that this system has nothing for: named, so that a client's user knows why.
NOT_BUILT = {
    *("portforwarding/create", "portforwarding/deleteByPort", "portforwarding/update", "machines/addUser"),
    *("machines/clone", "machines/snapshot", "machines/rollbackSnapshot", "machines/createTemplate"),
    *("machines/resize", "machines/getConsoleUrl", "disks/resize", "disks/limitIO", "cloudspaces/addUser"),
}
router = APIRouter(route_class=ErrorTranslatingRoute)


class G8Parameters:
    """The parameters of one call. A wrong one is refused by its name."""

    def __init__(self, raw: Any) -> None:
        if raw is not None and not isinstance(raw, dict):
            raise Refused(Category.INVALID, "the parameters must be a JSON object, or null")
        self._raw: dict[str, Any] = raw or {}

    def number(self, name: str, default: int | None = None) -> int:
        value = self._raw.get(name, default)
        if isinstance(value, str) and value.isdecimal() and len(value) <= MAX_DIGITS:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused(Category.INVALID, f"{name}: a whole number is needed")
        return value

    def get_text(self, name: str, default: str | None = None) -> str:
        value = self._raw.get(name, default)
        if not isinstance(value, str):
            raise Refused(Category.INVALID, f"{name}: a text is needed")
        return value

    def get_numbers(self, name: str) -> list[int]:
        value = self._raw.get(name) or []
        if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
            raise Refused(Category.INVALID, f"{name}: a list of whole numbers is needed")
        return value

    def refuse_parameters(self, *names: str) -> None:
        """Refuses what would be silently ignored."""
        for name in names:
            if self._raw.get(name):
                raise Refused(Category.INVALID, f"{name} is not supported here", "leave it out")

    def has_parameter(self, name: str) -> bool:
        return bool(self._raw.get(name))


G8Handler = Callable[[DialectCall, G8Parameters], Awaitable[Any]]


@router.post("/system/usermanager/whoami")
async def whoami(call: Call) -> dict[str, str]:
    """Says who the token belongs to."""
    return {"name": call.caller.name}


@router.post("/cloudapi/{area}/{verb}")
async def dispatch_cloudapi_call(request: Request, call: Call, area: str, verb: str) -> Response:
    """Finds the handler of a call, and answers with what it returns."""
    name = f"{area}/{verb}"
    if name in NOT_BUILT:
        raise HTTPException(HTTPStatus.NOT_IMPLEMENTED, f"{name} is not built")
    if name not in HANDLERS:
        raise Refused(Category.NOT_FOUND, f"there is no call {name[:80]}")
    return JSONResponse(await HANDLERS[name](call, G8Parameters(await read_json_body(request))))


async def _find_named(call: DialectCall, given: G8Parameters, kind: str) -> str:
    """Returns the path of the object whose number is given; Refused if it is gone, or another is at its path."""
    number = given.number(f"{kind}Id")
    path = await call.find_path_by_alias(Dialect.G8, str(number), kind)
    if kind_of(path) != kind or (await call.aliases_of_paths(Dialect.G8, [path])).get(path) != str(number):
        raise Refused(Category.NOT_FOUND, f"there is no {kind} {number}")
    if _belongs_to_account(path):
        call.check_tenant(root_of(path))
    return path


def _belongs_to_account(path: str) -> bool:
    """Tells whether an object belongs to an account; images belong to everybody."""
    return path.startswith("account:")


async def _number_of_object(call: DialectCall, path: str) -> int:
    return int((await call.aliases_of_paths(Dialect.G8, [path]))[path])


def _check_outcome(outcome: Outcome | None) -> bool:
    """Answers true; also if nothing was to be done, or if it takes longer, as its object shows. Raises if it failed."""
    if outcome is not None and outcome.result not in (ActionResult.SUCCEEDED, ActionResult.ALREADY):
        raise HTTPException(failure_status(outcome), outcome.message or f"{outcome.action} {outcome.result}")
    return True


def _action_handler(kind: str, action: str) -> G8Handler:
    """Makes the handler of an action without parameters."""

    async def act(call: DialectCall, given: G8Parameters) -> bool:
        path = await _find_named(call, given, kind)
        reason, repeatable = given.get_text("reason", ""), action not in _RESTARTS
        return _check_outcome(await call.perform_action(path, action, repeatable=repeatable, reason=reason))

    return act


async def _delete_object(call: DialectCall, given: G8Parameters, kind: str, only_from_bin: bool = False) -> bool:
    """Moves it to the recycle bin; with `permanently`, destroys it. Some kinds are destroyed from the bin only."""
    path = await _find_named(call, given, kind)
    permanently = given.has_parameter("permanently")
    if permanently and only_from_bin:
        _check_outcome(await call.perform_action(path, "delete"))
    return _check_outcome(await call.perform_action(path, "destroy" if permanently else "delete"))


async def _create_object(call: DialectCall, path: str, spec: dict[str, Any]) -> tuple[int, str]:
    """Creates an object. Returns its number, and the key of the request."""
    keys: list[str] = []

    def build(key: str) -> ActionRequest:
        keys.append(key)
        return call.build_request(path, "create", spec)

    path, outcome = await call.create_object_once(build)
    _check_outcome(outcome)
    return await _number_of_object(call, path), keys[-1]


async def _create_machine(call: DialectCall, given: G8Parameters) -> int:
    given.refuse_parameters("userdata", "privateIp")
    space = await _find_named(call, given, "cloudspace")
    image = await _find_named(call, given, "image")
    spec: dict[str, Any] = {"image": name_of(image), "description": given.get_text("description", "")}
    if given.has_parameter("sizeId"):
        size = next((size for size in SIZES if size.number == given.number("sizeId")), None)
        if size is None:
            raise Refused(Category.INVALID, f"sizeId: there is no size {given.number('sizeId')}")
        spec["size"] = size.name
    else:
        spec |= {"memory": -(-given.number("memory") // GIB), "vcpus": given.number("vcpus")}
    name = given.get_text("name")
    number, key = await _create_object(call, f"{space}:machine:{name}", spec)
    for index, disk_size in enumerate(given.get_numbers("datadisks"), start=1):
        disk = {"disk": f"{name}-data{index}", "size": disk_size}
        _check_outcome(
            await call.perform_action(f"{space}:machine:{name}", "add-disk", disk, request_id=f"{key}-{index}")
        )
    return number


async def _create_cloudspace(call: DialectCall, given: G8Parameters) -> int:
    account = await _find_named(call, given, "account")
    if given.get_text("privatenetwork", PRIVATE_NETWORK) not in (PRIVATE_NETWORK, ""):
        raise Refused(Category.INVALID, f"privatenetwork: it is {PRIVATE_NETWORK} here", "leave it out")
    return (await _create_object(call, f"{account}:cloudspace:{given.get_text('name')}", {}))[0]


async def _create_disk(call: DialectCall, given: G8Parameters) -> int:
    account = await _find_named(call, given, "account")
    spec = {"size": given.number("size"), "description": given.get_text("description", "")}
    return (await _create_object(call, f"{account}:disk:{given.get_text('name')}", spec))[0]


async def _add_disk(call: DialectCall, given: G8Parameters) -> int:
    machine = await _find_named(call, given, "machine")
    name = given.get_text("diskName")
    _check_outcome(await call.perform_action(machine, "add-disk", {"disk": name, "size": given.number("size", 10)}))
    return await _number_of_object(call, f"{root_of(machine)}:disk:{name}")


async def _change_disks(call: DialectCall, given: G8Parameters, action: str) -> bool:
    machine = await _find_named(call, given, "machine")
    disk = await _find_named(call, given, "disk")
    if root_of(disk) != root_of(machine):
        raise Refused(Category.INVALID, "diskId: the disk is of another account")
    return _check_outcome(await call.perform_action(machine, action, {"disk": name_of(disk)}))


async def _render_objects(call: DialectCall, kind: str, views: Sequence[ObjectView]) -> list[dict[str, Any]]:
    """Returns objects as the API shows them, with the numbers of those that they name."""
    named = {path for view in views for path in (view.path, *G8Ids.paths_named_by(view))}
    ids = G8Ids(await call.aliases_of_paths(Dialect.G8, sorted(named)))
    return [SHAPES[kind](view, ids) for view in views]


async def _list_objects(call: DialectCall, kind: str, prefix: str = "") -> list[dict[str, Any]]:
    views = [
        view
        async for view in call.ratchet.iterate_objects(kind, prefix)
        if view.status not in (*GONE_STATUSES, *BIN_STATUSES) and _may_see(call, view.path)
    ]
    return await _render_objects(call, kind, views)


def _may_see(call: DialectCall, path: str) -> bool:
    return not _belongs_to_account(path) or not call.caller.tenants or root_of(path) in call.caller.tenants


async def _get_object(call: DialectCall, given: G8Parameters, kind: str) -> dict[str, Any]:
    path = await _find_named(call, given, kind)
    return (await _render_objects(call, kind, [await call.ratchet.read_object(path)]))[0]


async def _list_below(call: DialectCall, given: G8Parameters, kind: str, above: str) -> list[dict[str, Any]]:
    return await _list_objects(call, kind, await _find_named(call, given, above))


async def _list_accounts(call: DialectCall, _given: G8Parameters) -> list[dict[str, Any]]:
    views = [view async for view in call.ratchet.iterate_objects("account") if view.status not in GONE_STATUSES]
    ids = await call.aliases_of_paths(Dialect.G8, [view.path for view in views])
    return [account_json(view, int(ids[view.path])) for view in views if _may_see(call, view.path)]


async def _answer_constant(value: Any) -> Any:
    return value


HANDLERS: dict[str, G8Handler] = {
    "accounts/list": _list_accounts,
    "locations/list": lambda _call, _given: _answer_constant([LOCATION]),
    "sizes/list": lambda _call, _given: _answer_constant([size_json(size) for size in SIZES]),
    "images/list": lambda call, _given: _list_objects(call, "image"),
    "portforwarding/list": lambda _call, _given: _answer_constant([]),
    "machines/list": lambda call, given: _list_below(call, given, "machine", "cloudspace"),
    "machines/get": lambda call, given: _get_object(call, given, "machine"),
    "machines/create": _create_machine,
    "machines/delete": lambda call, given: _delete_object(call, given, "machine"),
    **{
        f"machines/{action}": _action_handler("machine", action)
        for action in ("start", "stop", "reboot", "pause", "resume", "reset", "restore")
    },
    "machines/attachDisk": lambda call, given: _change_disks(call, given, "attach-disk"),
    "machines/detachDisk": lambda call, given: _change_disks(call, given, "detach-disk"),
    "machines/addDisk": _add_disk,
    "cloudspaces/list": lambda call, _given: _list_objects(call, "cloudspace"),
    "cloudspaces/get": lambda call, given: _get_object(call, given, "cloudspace"),
    "cloudspaces/create": _create_cloudspace,
    "cloudspaces/delete": lambda call, given: _delete_object(call, given, "cloudspace", only_from_bin=True),
    **{
        f"cloudspaces/{action}": _action_handler("cloudspace", action)
        for action in ("deploy", "disable", "enable", "restore")
    },
    "disks/list": lambda call, given: _list_below(call, given, "disk", "account"),
    "disks/get": lambda call, given: _get_object(call, given, "disk"),
    "disks/create": _create_disk,
    "disks/delete": lambda call, given: _delete_object(call, given, "disk"),
}


def _render_error(failure: ErrorAnswer) -> Response:
    text = failure.message + (f" ({failure.hint})" if failure.hint else "")
    return JSONResponse(text, failure.status)


def build_g8_app() -> FastAPI:
    """Builds the application of this dialect."""
    return build_dialect_app(router, DialectErrorFormat(_render_error, {Category.QUOTA: HTTPStatus.BAD_REQUEST}))
