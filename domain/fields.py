"""Shared pydantic field types, and how validation errors are worded for users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from pydantic import AfterValidator, ValidationError

from domain.errors import Category, Refused, join_first_texts
from domain.paths import check_name, check_path


def as_pydantic_validator(check: Callable[[str], str]) -> AfterValidator:
    """Wraps a check that raises Refused as a pydantic validator, which must raise ValueError."""

    def validate(text: str) -> str:
        try:
            return check(text)
        except Refused as refused:
            raise ValueError(f"{refused.message}; {refused.hint}" if refused.hint else refused.message) from refused

    return AfterValidator(validate)


Name = Annotated[str, as_pydantic_validator(check_name)]
ObjectPath = Annotated[str, as_pydantic_validator(check_path)]


@contextmanager
def refuse_invalid(what: str, hint: str = "", whole: str = "spec") -> Iterator[None]:
    """Refuses what pydantic finds invalid: `what`, then the fields. Not even the traceback holds the input."""
    try:
        yield
    except ValidationError as error:
        raise Refused(Category.INVALID, f"{what}: {describe_validation_errors(error, whole)}", hint) from None


def describe_validation_errors(error: ValidationError, whole: str = "spec") -> str:
    """Formats validation errors as `field: message`. The input is never quoted: it may hold secrets."""
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or whole}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return join_first_texts(problems)
