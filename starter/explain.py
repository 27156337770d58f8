"""`starter explain PATH`: why an object is in its status, what it waits for, what can be done now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain import registry
from domain.paths import short_path
from starter import reads, terminal
from starter.confirmation import may_destroy
from starter.errors import ExitCode
from starter.extensions import extension_of_kind
from starter.flags import OutputOption, WatchOption
from starter.kinds import ObjectArg
from starter.options import required_options
from starter.output import Output, Sheet, format_time, print_sheet
from starter.session import open_client
from starter.watch import run_once_or_watch

if TYPE_CHECKING:
    from client.explaining import Explanation


async def explain(path: ObjectArg, /, *, watch: WatchOption = False, output: OutputOption = "table") -> ExitCode:
    """Why an object is in its status, what it is waiting for, and what can be done now.

    Example: starter explain default/web
    """
    where = await reads.locate_object(path)
    return await run_once_or_watch(watch, lambda: _print_explanation(where, output))


async def _print_explanation(path: str, output: Output) -> ExitCode:
    from client.explaining import explain_object

    async with open_client() as client:
        found = await explain_object(client, path)
        link = client.web_ui_url(found.workflow, found.described_run)
        extension = extension_of_kind(found.kind)
        remarks = extension.remarks.get(found.kind)
        more = await remarks(client, await client.read_object(path)) if remarks else []
        suggest = None if found.hint else extension.suggestions.get(found.kind)
        first = await suggest(client, await client.read_object(path)) if suggest else suggest_next_command(found)
    rows = [*((remark.about, remark.text) for remark in found.remarks), *more]
    rows += [("watch it" if found.run else "see it", link)] if link else []
    if output != "table":
        data = found.model_dump(mode="json", exclude={"remarks"})
        data |= {"remarks": [{"about": about, "text": text} for about, text in rows], "next": first}
        print_sheet(Sheet(data, (), [], [path]), output)
        return ExitCode.DONE
    terminal.print_data(f"{path} is {found.status}, since {format_time(found.since)}")
    for about, text in (*rows, ("you can", describe_possible_actions(found, first))):
        terminal.print_data(terminal.escape_controls(f"{about:10} {terminal.rewrite_commands(text)}"))
    return ExitCode.DONE


def describe_possible_actions(found: Explanation, first: str | None) -> str:
    """Returns what can be done now, with a command to begin with."""
    if found.hint:
        return found.hint
    if not (options := _options_by_action(found)):
        return f"see what happened: {first}"
    actions = ", ".join(f"{action} {more}".rstrip() for action, more in options.items())
    return f"{found.remedy}; or {actions}" if found.remedy else f"{actions}; such as: {first}"


def suggest_next_command(found: Explanation) -> str | None:
    """Returns a command to begin with; None if the hint has one, or several."""
    if found.hint:
        return None
    if found.remedy_command:
        return found.remedy_command
    if not (options := _options_by_action(found)):
        return f"starter history {short_path(found.path)}"
    kind = registry.find_kind(found.kind)
    runnable = [action for action, more in options.items() if not more and _needs_no_choice(kind, action)]
    if gentle := next((action for action in runnable if not may_destroy(kind, action)), ""):
        return f"starter {kind.name} {gentle} {short_path(found.path)}"
    first = next((action for action in options if not may_destroy(kind, action)), next(iter(options)))
    if first in runnable or options[first]:
        return f"starter {kind.name} {first} {short_path(found.path)} {options[first]}".rstrip()
    return f"starter {kind.name} {first} --help"


def _needs_no_choice(kind: registry.Kind, action: str) -> bool:
    """Tells whether the action does something without options: an update that changes nothing is refused."""
    spec = kind.find_verb(action).spec
    try:
        return spec is None or bool(spec.model_validate({}))
    except ValueError:
        return False


def _options_by_action(found: Explanation) -> dict[str, str]:
    """Returns the options that each action needs."""
    kind = registry.find_kind(found.kind)
    needed = {verb.action: required_options(verb.spec) if verb.spec else "" for verb in kind.verbs}
    forced = {action: f"{needed[action]} --force".strip() for action in found.allowed_with_force}
    return {action: needed[action] for action in found.allowed} | forced
