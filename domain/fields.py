"""Fields that many messages and specs have, and how a check of ours guards one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator

from domain.errors import Refused
from domain.paths import check_name, check_path


def valid(check: Callable[[str], str]) -> AfterValidator:
    """A check that raises Refused, as a validator: pydantic wants ValueError."""

    def validate(text: str) -> str:
        try:
            return check(text)
        except Refused as refused:
            raise ValueError(f"{refused.message}; {refused.hint}" if refused.hint else refused.message) from refused

    return AfterValidator(validate)


Name = Annotated[str, valid(check_name)]
ObjectPath = Annotated[str, valid(check_path)]
