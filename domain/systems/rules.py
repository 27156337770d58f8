"""Decisions about parts of a system: a service's status, the moves of a deploy, and the order of a roll-out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from domain.errors import Category, Refused
from domain.model import Move
from domain.paths import check_name, check_path, is_at_or_below, name_of, parent_of
from domain.services.definition import Node
from domain.services.ports import TakenPort
from domain.services.rollout import ServiceFacts, instance_revision
from domain.statetable import NONE
from domain.systems.specs import is_service, stored_jobs, stored_spec, walk_nodes
from domain.systems.tables import BACKEND, PART, PartState

FORMER_KEY = "former"  # the key in a part's info of its spec before the last deploy that changed it
HOST_BACKENDS = ("process", "container")  # their services listen on ports of a machine: the same one
LEAVING_KEY = "leaving"  # the key in a part's info of the backend that may have been told to remove it


def observed_status(status: str, facts: ServiceFacts) -> str:
    """Returns the status of a service without an action, after a backend's report."""
    if status not in PART.stable_statuses:
        return status  # an action is under way, and writes the status itself
    if facts.is_rolled_out():
        return PartState.STABLE
    if status == PartState.FAILED:
        return status
    return PartState.SCALING if facts.is_only_miscounted() else PartState.DEGRADED


def landed_status(status: str, facts: ServiceFacts | None, generation: int) -> str:
    """Returns the status of a service whose deploy ends now. One that its backend does not know was never started."""
    if facts and facts.is_rolled_out(generation):
        return PartState.STABLE
    never_started = facts is None and status != PartState.SCALING
    return PartState.FAILED if status == PartState.PENDING or never_started else PartState.DEGRADED


def rollout_order(services: Mapping[str, Mapping[str, Any]]) -> TopologicalSorter[str]:
    """Sorts services so that each comes after those in its `after`: sibling services, or all in a sibling system."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for path, spec in services.items():
        siblings = [f"{parent_of(path)}:{name}" for name in spec.get("after", ())]
        sorter.add(path, *(service for sibling in siblings for service in services if is_at_or_below(service, sibling)))
    sorter.prepare()
    return sorter


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part as it is stored: status, spec, and whether it is under way or being removed."""

    path: str
    status: str
    spec: dict[str, Any]
    came_from: str = PartState.STABLE
    under_way: bool = True
    leaving: bool = False  # its backend may remove it, or may have done so


def replacement_moves(path: str, definition: Node, there: Mapping[str, StoredPart], backend: str) -> list[Move]:
    """Returns the moves that replace the definition below a path. Unchanged and stable parts are left alone."""
    wanted = {at: stored_spec(node) for at, node in walk_nodes(path, definition) if at != path}
    moves: list[Move] = []
    for at, spec in wanted.items():
        moves += _moves_for_part(there.get(at), at, spec)
    for at, part in there.items():
        if at not in wanted:
            moves.append(removal_begun_move(at, backend, {FORMER_KEY: {"spec": part.spec}}))
    return moves


def _moves_for_part(part: StoredPart | None, path: str, spec: dict[str, Any]) -> list[Move]:
    well = part and not part.leaving and (part.status == PartState.STABLE or not is_service(spec))
    if part and part.spec == spec and well:
        return []
    former = {FORMER_KEY: {"spec": part.spec if part else None}, LEAVING_KEY: None}
    to = PartState.UPDATING if part else PartState.PENDING
    moves = [Move(path=path, to=to, action="deploy", spec=spec, info=former)]
    if not is_service(spec):  # a system has no instances of its own: there is nothing to wait for
        moves.append(Move(path=path, to=PartState.STABLE, action="deploy"))
    elif part and is_only_rescaled(part.spec, spec):
        moves.append(Move(path=path, to=PartState.SCALING))
    return moves


def is_only_rescaled(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Tells whether only the number of instances changes."""
    same = instance_revision(Node.model_validate(before)) == instance_revision(Node.model_validate(after))
    return same and before.get("instances") != after.get("instances")


def reversal_moves(parts: Iterable[tuple[StoredPart, dict[str, Any]]], backend: str) -> list[Move]:
    """Returns the moves that undo a deploy, from the parts that it changed and their former specs."""
    moves: list[Move] = []
    for part, former in parts:
        if former["spec"] is None:
            by = "" if part.status == PartState.PENDING else "remove"
            moves.append(Move(path=part.path, to=PartState.DELETING, action=by, info={LEAVING_KEY: backend}))
        elif part.status == PartState.DELETING:
            moves.append(Move(path=part.path, to=part.came_from, info={LEAVING_KEY: None}))
            if is_service(part.spec):  # its backend may have stopped it already: it is ordered again
                moves.append(Move(path=part.path, to=PartState.UPDATING, action="deploy"))
        elif part.spec == former["spec"]:
            continue  # it was reverted already
        elif is_service(former["spec"]):
            to = part.status if part.status == PartState.SCALING and part.under_way else PartState.UPDATING
            moves.append(Move(path=part.path, to=to, action="deploy", spec=former["spec"]))
        else:
            moves.append(Move(path=part.path, to=part.status, spec=former["spec"]))
    return moves


def observation_move(path: str, to: str, facts: ServiceFacts) -> Move:
    """Returns the move that applies a backend's report to a service at rest."""
    return Move(path=path, to=to, actor=BACKEND, error="" if to == PartState.STABLE else facts.describe()[:500])


def check_definition_fits(path: str, definition: Node, backend: str, parent: StoredPart | None, at_root: bool) -> None:
    """Refuses if this definition may not be deployed at this path."""
    if at_root and not definition.is_system:
        raise Refused(
            Category.INVALID,
            f"the root of {path} must be a system, and this definition is a service",
            "put it below: give the path of the service, such as /web",
        )
    if not at_root and parent is None:
        above = parent_of(path)
        raise Refused(
            Category.NOT_FOUND,
            f"there is no {above}",
            f"deploy that first, or see: starter system graph {path.split(':')[1]}",
        )
    if parent and is_service(parent.spec):
        raise Refused(Category.INVALID, f"{parent.path} is a service: it has no parts", "deploy to another path")
    name = name_of(path)
    if definition.name and definition.name != name:
        raise Refused(
            Category.INVALID, f"the definition is named {definition.name}, the path ends in {name}", "make them agree"
        )
    check_backend(path, definition, backend)


def check_backend(path: str, definition: Node, backend: str) -> None:
    """Refuses a definition that the system's backend cannot run."""
    nodes = list(walk_nodes(path, definition))
    images = [at for at, node in nodes if node.image] + [
        f"job {job.name} of {at}" for at, node in nodes for job in node.jobs if job.image
    ]
    if backend == "process" and images:
        raise Refused(
            Category.INVALID,
            f"the process backend runs commands, not images: {images[0]}",
            "give it a command, or create the system with --backend container",
        )
    imageless = [at for at, node in nodes if node.command and not node.image]
    if backend == "container" and imageless:
        raise Refused(
            Category.INVALID,
            f"the container backend runs images: {imageless[0]} has none",
            "give it an image, with or without a command, or create the system with --backend process",
        )
    confined = [at for at, node in nodes if node.readOnly or node.network != "own" or node.resources.cpus]
    if backend == "process" and confined:
        raise Refused(
            Category.INVALID,
            f"readOnly, network and cpus are of containers: {confined[0]}",
            "leave them out, or create the system with --backend container",
        )


def published_ports(path: str, definition: Node) -> dict[int, str]:
    """Returns the services of a definition by their ports on the machine."""
    return {node.port: at for at, node in walk_nodes(path, definition) if node.port}


def check_ports_passed_on(wanted: Mapping[int, str], definition: Node, path: str, there: Iterable[StoredPart]) -> None:
    """Refuses a service that would wait for the port of one that this deploy removes, as that one goes last."""
    services = {at for at, node in walk_nodes(path, definition) if not node.is_system}
    for part in there:
        port = int(part.spec.get("port") or 0)
        if port in wanted and part.path not in services:
            message = f"port {port} of {wanted[port]} is that of {part.path}, which this deploy removes last"
            raise Refused(Category.NOT_ALLOWED, message, "remove that one by a deploy of its own first")


def check_ports_free(taken: Sequence[TakenPort]) -> None:
    """Refuses services whose ports other services of the machine have."""
    for port in taken:
        message = f"a machine has each port once: port {port.port} of {port.path} is that of {port.describe_holder()}"
        raise Refused(Category.NOT_ALLOWED, message, f"choose another port, or {port.find_remedy()}")


def removal_begun_move(path: str, backend: str, info: Mapping[str, Any] | None = None) -> Move:
    """Returns the move for a part to be removed. Its mark outlives a cut-off removal: the backend may finish it."""
    return Move(path=path, to=PartState.DELETING, action="remove", info={**(info or {}), LEAVING_KEY: backend})


def removal_done_move(path: str) -> Move:
    """Returns the move for a part that was removed completely."""
    return Move(path=path, to=NONE, action="remove")


def removal_failed_move(path: str, facts: Sequence[ServiceFacts]) -> Move:
    """Returns the move for a part that could not be removed completely."""
    own = next((service for service in facts if service.path == path), None)
    return Move(path=path, to=PartState.DEGRADED, action="remove", error=own.describe_remaining()[:500] if own else "")


def subtree_definition(path: str, specs: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the definition at a path from the stored specs at and below it; None if nothing was deployed there."""
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for at in specs:
        parts[parent_of(at) or ""].append(at)

    def define_node(at: str) -> dict[str, Any]:
        if is_service(specs[at]):
            return specs[at]
        return {"parts": [{"name": name_of(part), **define_node(part)} for part in parts[at]], **stored_jobs(specs[at])}

    deployed = parts[path] or is_service(specs[path]) or specs[path].keys() & {"parts", "jobs"}
    return define_node(path) if deployed else None


def node_path(system: str, text: str) -> str:
    """Returns the path of a node, from its system's path and the tree path that people write: `/` or `/a/b/c`."""
    if not text.startswith("/"):
        raise _bad_tree_path_refusal(text, "it begins with a slash")
    if text == "/":
        return system
    names = text[1:].split("/")
    if not names[-1]:
        raise _bad_tree_path_refusal(text, "it does not end with a slash")
    if not all(names):
        raise _bad_tree_path_refusal(text, "no part of it is empty")
    return check_path(":".join([system, *map(check_name, names)]))


def tree_path(path: str) -> str:
    """Returns the tree path of a node, `/a/b` for system:shop:a:b; also of a deploy or teardown at that node."""
    return "/" + "/".join(path.partition("::")[0].split(":")[2:])


def _bad_tree_path_refusal(text: str, rule: str) -> Refused:
    return Refused(Category.INVALID, f"bad path {text[:80]!a} in a system: {rule}", "write / or /a/b/c")
