"""Command-line options made from a spec's fields, so that simple specs need no file."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import Parameter
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from starter.errors import ExitCode

_PLAIN_TYPES = (str, int, float, bool)


def spec_options(model: type[BaseModel]) -> dict[str, inspect.Parameter]:
    """Returns an optional option for each field that is a string, a number, a choice or a list of strings."""
    found = {}
    for name, field in model.model_fields.items():
        if (word := _option_type(field.annotation)) is not None:
            given = Annotated[word | None, Parameter(name=flag_name(name), negative="", help=_help_of_field(field))]  # type: ignore[valid-type]
            found[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=given)
    return found


def required_fields(model: type[BaseModel]) -> list[str]:
    """Returns the required fields."""
    return [name for name, field in model.model_fields.items() if field.is_required()]


def needs_spec_file(model: type[BaseModel]) -> bool:
    """Tells whether a required field fits into no option."""
    return not spec_options(model).keys() >= set(required_fields(model))


def required_options(model: type[BaseModel]) -> str:
    """Returns the required options, as part of an example command line."""
    if needs_spec_file(model):
        return "--file FILE"
    return " ".join(f"{flag_name(name)} {flag_name(name)[2:].upper()}" for name in required_fields(model))


def add_spec_options(
    command: Callable[..., Awaitable[ExitCode]], model: type[BaseModel]
) -> Callable[..., Awaitable[ExitCode]]:
    """Replaces the command's `**given` by the options of a spec; requires its `file` if a field fits into none."""
    signature = inspect.signature(command, eval_str=True)
    parameters = {**signature.parameters, **spec_options(model)}
    del parameters["given"]
    if needs_spec_file(model):
        parameters["file"] = parameters["file"].replace(default=inspect.Parameter.empty)
    command.__signature__ = signature.replace(parameters=[*parameters.values()])  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return command


def _option_type(annotation: Any) -> Any:
    """Returns the type of an option for a field of this type, or None if it needs a file."""
    origin, inner = get_origin(annotation), [each for each in get_args(annotation) if each is not NoneType]
    if origin in (Union, UnionType) and len(inner) == 1:
        return _option_type(inner[0])
    if origin is Annotated:
        return _option_type(inner[0])
    if origin is Literal:
        return annotation
    if origin in (list, tuple) and inner and _option_type(inner[0]) is str:
        return list[str]
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, Enum):
        return Literal[tuple(str(each.value) for each in annotation)]
    return annotation if annotation in _PLAIN_TYPES else None


def flag_name(name: str) -> str:
    """Returns the option of a field: `subGroup` and `sub_group` are both --sub-group."""
    return "--" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).replace("_", "-").lower()


def _help_of_field(field: FieldInfo) -> str:
    if field.is_required():
        return f"{field.description or ''} Required, here or in the file.".strip()
    usual = "" if field.default in (None, "", False) else f" Usually {field.default}."
    return f"{field.description or ''}{usual}"
