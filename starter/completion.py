"""Shell completion of object names, read from the running server; none if it does not answer quickly."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, get_args, get_origin

from cyclopts import App, Parameter

from domain import registry, wire
from domain.errors import RatchetError, Refused
from domain.model import ObjectsView, ReadQuery
from domain.paths import short_path
from starter.naming import prefix_to_list

if TYPE_CHECKING:
    from cyclopts.completion._engine import CompletionContext

    from client.reading import Queries

COMPLETION_SECONDS = 5.0  # a user has pressed TAB and waits; on a busy machine the program loads for seconds
MAX_NAMES = 500

Completer = Callable[["CompletionContext"], list[str]]


def object_completer(*kinds: str) -> Completer:
    """Returns a completer for objects of these kinds, or of every kind."""

    def complete(context: CompletionContext) -> list[str]:
        return find_names_within(COMPLETION_SECONDS, kinds or tuple(registry.KINDS), context.incomplete)

    return complete


def find_names_within(seconds: float, kinds: Iterable[str], begun: str) -> list[str]:
    """Returns the names found in that time. Runs in a thread, as the command line has an event loop already."""
    found: list[str] = []

    def work() -> None:
        with suppress(Exception):  # completion prints no errors
            asyncio.run(_find_names(list(kinds), begun, seconds, found))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return sorted(found)


async def _find_names(kinds: list[str], begun: str, seconds: float, found: list[str]) -> None:
    from starter.session import open_reader

    async with asyncio.timeout(seconds), open_reader() as client:
        answers = [_names_of_kind(client, registry.find_kind(kind), begun, seconds) for kind in kinds]
        for answer in asyncio.as_completed(answers):
            with suppress(RatchetError):  # a kind that cannot be read hides no other
                found += await answer


async def _names_of_kind(client: Queries, kind: registry.Kind, begun: str, seconds: float) -> list[str]:
    whole = ":" in begun
    above = begun.rpartition(":" if whole else "/")[0]
    if not whole and above.count("/") + bool(above) >= len(kind.scope):
        return []
    try:
        query = ReadQuery(kind=kind.name, path="" if whole else prefix_to_list(above, kind), limit=MAX_NAMES)
    except Refused:  # the word is no prefix of a path of this kind
        return []
    page = await client.run_query(wire.READ_OBJECTS, query, ObjectsView, seconds=seconds)
    names = (each.path if whole else short_path(each.path) for each in page.objects)
    return [name for name in names if name.startswith(begun)]


def complete_objects_of_kind(noun: App, kind: str) -> None:
    """Makes the commands of a noun complete objects of their own kind."""
    for name in noun.resolved_commands():
        command = None if name.startswith("-") else noun[name].default_command
        if command is None or not inspect.isfunction(command):
            continue
        signature = inspect.signature(command, eval_str=True)
        target = signature.parameters.get("target")
        if target is None or get_origin(target.annotation) is not Annotated:
            continue
        base, told, *_ = get_args(target.annotation)  # drop an earlier completer: some nouns share a command
        aimed = target.replace(annotation=Annotated[base, told, Parameter(completer=object_completer(kind))])
        parameters = [aimed if parameter is target else parameter for parameter in signature.parameters.values()]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
