"""What next is always right: every hint's command exists and parses, and what a state table offers it allows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from cyclopts.exceptions import CycloptsError

from domain import registry
from domain.statetable import NONE, Ruling
from starter.app import build_cli_app
from starter.options import required_options
from tests.cases import every_case

ROOT = Path(__file__).parents[1]
LAYERS = ("domain", "store", "activities", "workflows", "client", "workers", "gateway", "starter", "providers")
PLACEHOLDER = "x"
COMMAND = re.compile(r"(?<![\w.:/-])starter ((?:[^;,()`'\"?\n]|(?<=\w)'(?=\w))+)")
WORDS_AFTER = re.compile(
    r" (?:and|or|does|with any|which|if|until|then|begins|takes|has|gets|printed)\b.*| +#.*| \(.*|: .*|\. .*"
)


def texts_of(module: ast.Module) -> Iterator[str]:
    """Every text of a module, with a placeholder for each value in it; not docstrings."""
    nodes = [*ast.walk(module)]
    skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    skipped |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


@cache
def assert_parses(*words: str) -> None:
    """Parse a command. Thousands of pairs of a status and an action offer the same few hundred."""
    build_cli_app().parse_args(words, print_error=False, exit_on_error=False)


@cache
def hinted_commands() -> dict[str, str]:
    """The commands that texts of the product tell users to run, each with the file that has it."""
    found: dict[str, str] = {}
    for layer in LAYERS:
        for file in sorted((ROOT / layer).rglob("*.py")):
            for text in texts_of(ast.parse(file.read_text())):
                for command in COMMAND.findall(text):
                    words = WORDS_AFTER.sub("", command).strip().rstrip(".:")
                    if words and re.match(r"[a-z]", words):
                        found.setdefault(words, str(file.relative_to(ROOT)))
    return found


def values_for(words: str) -> list[str]:
    """The words as a user would type them: `PATH`, `KIND` and the values in f-strings stand for something."""
    typed = words.replace("KIND", "mci").replace("[dN]", "d1").replace("…", PLACEHOLDER)
    return [re.sub(r"^x$", "x", word) for word in typed.split()]


def is_template(words: str) -> bool:
    """Commands whose noun or verb is a value: the families' tests and the tables below check those."""
    return PLACEHOLDER in words.split()[:2]


def test_every_command_that_a_text_of_the_product_names_exists() -> None:
    """No table of cases: to read the whole product takes seconds, which every process would take to collect."""
    wrong = list[str]()
    for words, file in hinted_commands().items():
        try:
            if not is_template(words):
                assert_parses(*values_for(words))
        except CycloptsError as error:
            wrong.append(f"{file}: starter {words}: {error}")
    assert not wrong, "\n".join(wrong)


def test_the_search_finds_commands() -> None:
    assert len(hinted_commands()) > 60
    with pytest.raises(CycloptsError):
        assert_parses("mci", "fly", "x")


# Refusals that say it all in their message, or that no user gets.
WITHOUT_HINT = {
    "domain/paths.py": "the message says what a name or a path may be",
    "domain/mci/specs.py": "a place is always resolved first",
    "client/explaining.py": "never leaves that module",
    "activities/access.py": "forbidden: the CLI's hint for that is `starter whoami`",
    "activities/inventory.py": "forbidden: as above",
}


def test_every_refusal_says_what_next() -> None:
    silent = {
        f"{file.relative_to(ROOT)}:{call.lineno}"
        for layer in LAYERS
        for file in sorted((ROOT / layer).rglob("*.py"))
        if str(file.relative_to(ROOT)) not in WITHOUT_HINT
        and "dialects" not in file.parts  # they answer in the source systems' own forms, which have no hints
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and _lacks_hint(call.func.id, call)
    }
    assert not silent, sorted(silent)


def _lacks_hint(name: str, call: ast.Call) -> bool:
    if name == "Refused":
        return len(call.args) + len(call.keywords) < 3
    return name == "Refusal" and all(word.arg != "hint" for word in call.keywords)


PAIRS = [
    (kind.name, status, action)
    for kind in registry.KINDS.values()
    for status in kind.table.statuses
    for action in kind.requestable_actions
    if kind.table.judge(status, action).ruling is Ruling.REFUSED
]


@every_case(("kind", "status", "action"), PAIRS)
def test_whatever_is_refused_the_actions_that_are_offered_instead_are_commands_and_allowed(
    kind: str, status: str, action: str
) -> None:
    own = registry.find_kind(kind)
    if status == NONE:
        assert_parses("list", kind)
        return
    plain = [word for word in own.table.allowed_actions(status) if word in own.requestable_actions]
    forced = [word for word in own.table.actions_needing_force(status) if word in own.requestable_actions]
    assert action not in plain
    for word in dict.fromkeys((*plain, *forced)):
        assert own.table.judge(status, word, force=word in forced).ruling is Ruling.GO
        spec = own.find_verb(word).spec
        options = required_options(spec).split() if spec else []
        given = [re.sub(r"^[A-Z][A-Z-]*$", "1", option) for option in options]
        assert_parses(kind, word, "x", *given, *(["--force"] if word in forced else []))
