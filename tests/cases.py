"""Tests of whole tables: one test asks every case, and names each one that is wrong, not only the first."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def every_case(
    names: str | tuple[str, ...], cases: Iterable[Any], ids: Callable[[Any], str] = str
) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but all cases are one test: for those that take no time and share nothing.

    Thousands of tests of a microsecond each cost minutes in being collected, sent to a process and reported.
    """
    words = tuple(names.replace(",", " ").split()) if isinstance(names, str) else names
    table = [case if len(words) > 1 else (case,) for case in cases]
    assert table, "a table without a case proves nothing"

    def fold(test: Test) -> Test:
        @wraps(test)
        def ask_every_case(**fixtures: Any) -> None:
            wrong: list[tuple[str, BaseException]] = []
            for case in table:
                try:
                    test(**fixtures, **dict(zip(words, case, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    wrong.append(("-".join(map(ids, case)), error))
            if wrong:
                lines = "\n".join(f"{label}: {type(error).__name__}: {error}" for label, error in wrong)
                raise AssertionError(f"{len(wrong)} of {len(table)} cases are wrong\n{lines}") from wrong[0][1]

        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in words]
        missing = set(words) - set(signature.parameters)
        assert not missing, f"{test.__name__} does not take {missing}"
        ask_every_case.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        ask_every_case.cases = len(table) * getattr(test, "cases", 1)  # type: ignore[attr-defined]
        return ask_every_case

    return fold
