"""A folded table has the power of as many tests: every case is asked, and every wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import every_case

PAIRS = [("one", 1), ("two", 2), ("three", 3), ("four", 4)]


def test_every_case_is_asked_and_every_wrong_one_is_named() -> None:
    asked = []

    @every_case("word, number", PAIRS)
    def is_short(word: str, number: int) -> None:
        asked.append(number)
        assert len(word) <= 3

    with pytest.raises(AssertionError) as caught:
        is_short()
    assert asked == [1, 2, 3, 4]
    told, *lines = str(caught.value).splitlines()
    assert told == "2 of 4 cases are wrong"
    assert [line.split(":")[0] for line in lines if line[:5] in ("three", "four-")] == ["three-3", "four-4"]


def test_whatever_a_case_raises_is_a_wrong_case() -> None:
    @every_case("number", [0, 1, 2])
    def fails(number: int) -> None:
        if number == 0:
            pytest.fail("by hand")
        with pytest.raises(KeyError):
            assert {1: 1}[number]

    with pytest.raises(AssertionError, match=r"(?s)2 of 3 cases are wrong.*0: .*by hand.*1: .*DID NOT RAISE"):
        fails()


@every_case("number", [1, 2])
def test_what_is_no_case_is_a_fixture(number: int, tmp_path: Path) -> None:
    assert number
    assert tmp_path.is_dir()


def test_a_table_without_a_case_or_with_a_wrong_name_is_refused() -> None:
    with pytest.raises(AssertionError, match="proves nothing"):
        every_case("number", [])

    def takes(number: int) -> None:
        assert number

    with pytest.raises(AssertionError, match="does not take"):
        every_case("nummer", [1])(takes)
