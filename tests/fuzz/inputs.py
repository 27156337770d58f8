"""Generators of input: any JSON, any text, hostile names, and valid documents with one mistake."""

from __future__ import annotations

import copy
import os
import random
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

T = TypeVar("T")

SEED = int(os.environ.get("RATCHET_CHAOS_SEED") or random.randrange(10**6))

# fmt: off
HOSTILE = (
    "", " ", ".", "..", "../../x", "a/b/c/d/e/f", "a" * 1_001, "a\nb", "a\x00b", "' OR 1=1 --", '"', "%", "_", "*",
    "\u202eabc", "Ａ", "é", "\ud800", "😀", "-", "--", "--help", "-f", "@", "$(id)", "`id`", "null", "None", "0", "-1",
    "ns", "ns:", "ns:default", "ns:default:mci", "ns:default:mci:", "ns:default:mci:web::link", ":", "::", "a/b",
    "ns:default:mci:web", "org:acme:cloudlet:berlin", "9" * 400, "1e999", "NaN", "2026-13-45", "/", "\\", "{", "[",
)
# fmt: on

texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40))
numbers = st.one_of(st.integers(), st.integers(-3, 3), st.floats(), st.just(10**400))
leaves = st.one_of(st.none(), st.booleans(), numbers, texts)
values: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
mappings = st.dictionaries(texts, values, max_size=5)


def places(document: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, from the top."""
    steps: list[tuple[Any, Any]] = []
    if isinstance(document, dict):
        steps = list(document.items())
    elif isinstance(document, list):
        steps = list(enumerate(document))
    return [here, *(place for key, inner in steps for place in places(inner, (*here, key)))]


@st.composite
def spoilt(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """A sound document in which something was replaced, removed or added."""
    found = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(found)))
        if not place:
            found[draw(texts)] = draw(values)
            continue
        within: Any = found
        for step in place[:-1]:
            within = within[step]
        if isinstance(within, dict) and draw(st.booleans()):
            within.pop(place[-1])
        else:
            within[place[-1]] = draw(values)
    return found


@st.composite
def torn(draw: st.DrawFn, text: str) -> str:
    """A sound text with a piece cut out, doubled, or replaced."""
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 30)))
    return text[:start] + draw(st.one_of(texts, st.just(""), st.just(text[start:end] * 2))) + text[end:]


def drawn(strategy: st.SearchStrategy[T], number: int) -> list[T]:
    """Several of them, for tests that have something else to wait for."""
    found: list[T] = []

    @seed(SEED)
    @settings(
        suppress_health_check=list(HealthCheck),
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
    )
    @given(strategy)
    def keep(value: T) -> None:
        found.append(value)

    keep()
    return found
