"""Finds every refusal in a family's code: its exit code, its message and its hint."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from domain.errors import Category
from starter.errors import EXIT_OF_CATEGORY

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("domain", "store", "activities", "workflows")

RefusalRow = tuple[str, str, str]


def refusals_of_family(family: str) -> list[RefusalRow]:
    """Exit code, message, hint; once each, in the order of the code."""
    files = [file for layer in LAYERS for file in _files_of_family(ROOT / layer / family)]
    return list(dict.fromkeys(row for file in files for row in _refusals_of_module(ast.parse(file.read_text()))))


def _files_of_family(family: Path) -> list[Path]:
    return (
        sorted(family.glob("*.py"))
        if family.is_dir()
        else [file for file in [family.with_suffix(".py")] if file.exists()]
    )


def _refusals_of_module(module: ast.Module) -> Iterator[RefusalRow]:
    """Calls of `Refused`, and of functions that only add the category to it."""
    helpers: dict[str, ast.expr] = {}
    for helper in [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]:
        words = {each.arg for each in helper.args.args}
        for call in _find_calls(helper, {"Refused"}):
            if len(call.args) > 1 and isinstance(call.args[1], ast.Name) and call.args[1].id in words:
                helpers[helper.name] = call.args[0]
    for function in [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        said = {
            target.id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in _find_calls(function, {"Refused", *helpers}):
            assert isinstance(call.func, ast.Name)
            category, *words_given = [helpers[call.func.id], *call.args] if call.func.id in helpers else call.args
            message, hint = (
                _text_of_expression(each, said) for each in [*words_given, ast.Constant(""), ast.Constant("")][:2]
            )
            if message and isinstance(category, ast.Attribute):
                yield str(int(EXIT_OF_CATEGORY[Category[category.attr]])), message, hint


def _find_calls(function: ast.AST, names: set[str]) -> list[ast.Call]:
    found = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return [call for call in found if isinstance(call.func, ast.Name) and call.func.id in names]


def _text_of_expression(node: ast.expr, said: dict[str, ast.expr]) -> str:
    """A string with `…` for its gaps; empty if it is built elsewhere."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.Name) and node.id in said:
        return _text_of_expression(said[node.id], {})
    return ""
