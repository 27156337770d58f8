"""Shared pydantic field types, and how validation errors are worded for users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic._internal._model_construction import ModelMetaclass

from domain.errors import Category, Refused, join_first_texts, suggest_word
from domain.paths import check_name, check_path

REQUEST_HINT = 'such as Request(path="ns:default:mci:web", action="suspend")'


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
def refuse_validation_errors(
    what: str, hint: str = "", whole: str = "spec", model: type[BaseModel] | None = None
) -> Iterator[None]:
    """Refuses what pydantic finds invalid: `what`, then the fields. Not even the traceback holds the input.

    With the model, an unknown field is answered with the one that was probably meant.
    """
    try:
        yield
    except ValidationError as error:
        wrong = list_wrong_fields(error, whole, model)
        raise Refused(Category.INVALID, f"{what}: {_join_wrong_fields(wrong)}", hint, wrong_fields=wrong) from None


class RefusingModel(ModelMetaclass):
    """Metaclass of what customers' programs build themselves: bad arguments raise Refused, as every other refusal.

    What comes over the wire is validated by `model_validate`, which raises a ValidationError.
    """

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        with refuse_validation_errors("the request is not valid", REQUEST_HINT, whole="request"):
            return super().__call__(*args, **fields)


def describe_validation_errors(
    error: ValidationError, whole: str = "spec", model: type[BaseModel] | None = None
) -> str:
    """Formats validation errors as `field: message`."""
    return _join_wrong_fields(list_wrong_fields(error, whole, model))


def list_wrong_fields(
    error: ValidationError, whole: str = "spec", model: type[BaseModel] | None = None
) -> list[tuple[str, str]]:
    """Returns each wrong field and what is wrong with it. Values are never quoted: they may hold secrets."""
    wrong = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = _describe_unknown_field(model, problem["loc"])
        elif problem["type"] in ("model_type", "model_attributes_type") and not problem["loc"] and model:
            message = f"must be one JSON object with the fields {', '.join(model.model_fields)}"
        wrong.append((".".join(map(str, problem["loc"])) or whole, message))
    return wrong


def _join_wrong_fields(wrong: Sequence[tuple[str, str]]) -> str:
    return join_first_texts([f"{field}: {message}" for field, message in wrong])


def _describe_unknown_field(model: type[BaseModel] | None, place: Sequence[int | str]) -> str:
    """Says that there is no such field, which one was probably meant, or which ones there are."""
    for step in place[:-1]:
        if model and isinstance(step, str):
            field = model.model_fields.get(step)
            model = _find_model(field.annotation) if field else None
    if model is None:
        return "there is no such field"
    return f"there is no such field{describe_known_words(str(place[-1]), list(model.model_fields), 'fields are')}"


def describe_known_words(given: str, known: Sequence[str], there_are: str = "there are") -> str:
    """Returns the end of a sentence: the word that was probably meant, else all of them."""
    if suggestion := suggest_word(given, known):
        return f"; {suggestion.rstrip()}"
    return f"; {there_are}: {', '.join(known)}" if known else ""


def _find_model(annotation: Any) -> type[BaseModel] | None:
    """Returns the model within a type such as `list[SubGroup] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _find_model(part))), None)
