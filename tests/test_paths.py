"""Paths and names: what is accepted, what is refused, and which path is above which."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from domain.errors import Category, Refused
from domain.model import Request
from domain.paths import (
    MAX_PATH,
    ancestor_paths,
    build_path,
    check_name,
    check_path,
    expand_path,
    kind_of,
    kinds_on_path,
    name_of,
    parent_of,
    short_path,
)
from domain.validation import ObjectPath
from tests.cases import every_case

NAME_RULE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")  # as the rules print it

VALID = ["a", "Z", "0", "web", "front-1", "a.b_c-d", "A1", "a--b", "1.2.3", "x" * 63, "a" + "-" * 61 + "b"]
HOSTILE = [
    "",
    " ",
    "..",
    "../",
    "../etc/passwd",
    "a/../b",
    "a/b",
    "a\\b",
    "a:b",
    ":",
    "'",
    '"',
    "a'b",
    "' OR '1'='1",
    "x' OR ",
    "a; DROP TABLE objects",
    "%",
    "a%b",
    "_a",
    "a_",
    "-a",
    "a-",
    ".a",
    "a.",
    "a b",
    " a",
    "a ",
    "a\n",
    "\na",
    "a\nb",
    "a\r\n",
    "a\tb",
    "a\0",
    "\0",
    "a\0b",
    "\u202ea",  # right-to-left override
    "a\u202eb",
    "a\u200bb",  # zero-width space
    "é",
    "ａ",  # a full-width letter: looks like a
    "а",  # a Cyrillic letter: looks like a
    "٣",  # an Arabic digit: str.isdigit says yes
    "x" * 64,
    "x" * 1_001,
    "*",
    "a*",
    "{a}",
    "$(a)",
    "`a`",
    "\ud800",  # half a surrogate pair: cannot be written as UTF-8
]


def escaped(text: object) -> str:
    return ascii(text)[:40]


@every_case("name", VALID, ids=escaped)
def test_a_well_formed_name_is_itself(name: str) -> None:
    assert check_name(name) == name
    assert check_path(f"ns:{name}") == f"ns:{name}"
    assert expand_path(name, ("ns",)) == f"ns:{name}"


@every_case("name", HOSTILE, ids=escaped)
def test_a_hostile_name_is_refused_and_shown_harmless(name: str) -> None:
    with pytest.raises(Refused) as caught:
        check_name(name)
    assert caught.value.category is Category.INVALID
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 700


@every_case("path", ["ns:{}", "ns:default:mci:{}", "ns:{}:mci:web", "ns:default:mci:web:vm:{}"])
@every_case("name", [name for name in HOSTILE if name != "a:b"], ids=escaped)
def test_a_hostile_name_is_refused_anywhere_in_a_path(path: str, name: str) -> None:
    with pytest.raises(Refused) as caught:
        check_path(path.format(name))
    assert caught.value.category is Category.INVALID
    with pytest.raises(Refused):
        Request(path=path.format(name), action="suspend")
    with pytest.raises(ValidationError):
        Request.model_validate({"path": path.format(name), "action": "suspend"})


@every_case("text", [text for text in HOSTILE if text != "a/b"], ids=escaped)
def test_hostile_text_is_refused_in_the_place_of_a_path(text: str) -> None:
    for form in (text, f"default/{text}", f"{text}/web"):
        with pytest.raises(Refused):
            expand_path(form, ("ns", "mci"))
    with pytest.raises(Refused):
        build_path(("ns", "mci"), ("default", text))


@every_case(
    "path",
    [
        "",
        "ns",
        "ns:",
        ":default",
        "ns:default:",
        "ns:default:mci",
        "ns:default::web",
        "NS:default",
        "n1:default",
        "ns :default",
        "ns\n:default",
        "n" * 21 + ":default",
        "ns:default:MCI:web",
        "/ns/default",
    ],
    ids=escaped,
)
def test_a_path_is_pairs_of_kind_and_name_and_nothing_else(path: str) -> None:
    with pytest.raises(Refused) as caught:
        check_path(path)
    assert caught.value.category is Category.INVALID


def test_a_path_may_be_so_long_and_no_longer() -> None:
    fits = ":".join(["a:" + "x" * 63] * 9) + ":a:" + "x" * 4
    longer = fits + "x" * 60
    assert check_path(fits) == fits
    assert len(longer) > MAX_PATH
    with pytest.raises(Refused, match=f"path of {len(longer)} characters is too long: the limit is {MAX_PATH}"):
        check_path(longer)
    with pytest.raises(Refused, match="too long"):
        check_path("a:x" * 1_000_000)


def test_case_twins_are_two_objects() -> None:
    assert check_path("ns:default:mci:Web") != check_path("ns:default:mci:web")
    assert expand_path("default/Web", ("ns", "mci")) == "ns:default:mci:Web"


def test_a_validated_path_in_a_message_is_refused_as_pydantic_wants_it() -> None:
    adapter = TypeAdapter(ObjectPath)
    assert adapter.validate_python("ns:default") == "ns:default"
    with pytest.raises(ValidationError, match="bad name"):
        adapter.validate_python("ns:..")


@pytest.mark.parametrize(
    ("text", "scope", "path"),
    [
        ("default", ("ns",), "ns:default"),
        ("default/web", ("ns", "mci"), "ns:default:mci:web"),
        ("ns:default:mci:web", ("ns", "mci"), "ns:default:mci:web"),
        ("default/web/front-1", ("ns", "mci", "vm"), "ns:default:mci:web:vm:front-1"),
    ],
)
def test_both_forms_of_a_path_expand_to_the_same(text: str, scope: tuple[str, ...], path: str) -> None:
    assert expand_path(text, scope) == path
    assert expand_path(short_path(path), scope) == path


@every_case("text", ["web", "default/web/front-1", "ns:default", "ns:default:vm:web", "mci:web:ns:default", "default/"])
def test_what_does_not_name_that_kind_is_refused(text: str) -> None:
    with pytest.raises(Refused) as caught:
        expand_path(text, ("ns", "mci"))
    assert caught.value.category is Category.INVALID


def test_the_refusal_of_another_kind_says_what_to_write() -> None:
    with pytest.raises(Refused, match="'web' does not name an object of kind mci") as caught:
        expand_path("web", ("ns", "mci"))
    assert caught.value.hint == "write <ns>/<mci>, such as default/web"


def test_the_parts_of_a_path() -> None:
    path = "ns:default:mci:web:vm:front-1"
    assert (kind_of(path), name_of(path)) == ("vm", "front-1")
    assert ancestor_paths(path) == ["ns:default", "ns:default:mci:web"]
    assert parent_of(path) == "ns:default:mci:web"
    assert (ancestor_paths("ns:default"), parent_of("ns:default")) == ([], None)


names = st.from_regex(NAME_RULE, fullmatch=True)
pairs = st.lists(st.tuples(st.sampled_from(("ns", "mci", "vm")), names), min_size=1, max_size=6)


@settings(deadline=None)
@given(pairs=pairs)
def test_any_path_survives_its_short_form(pairs: list[tuple[str, str]]) -> None:
    scope, words = [kind for kind, _ in pairs], [name for _, name in pairs]
    path = build_path(scope, words)
    assert check_path(path) == path
    assert short_path(path).split("/") == words
    assert expand_path(path, scope) == expand_path(short_path(path), scope) == path
    assert (kind_of(path), name_of(path)) == pairs[-1]


@settings(deadline=None)
@given(pairs=pairs)
def test_any_path_lies_below_its_ancestors_and_nothing_else(pairs: list[tuple[str, str]]) -> None:
    path = build_path([kind for kind, _ in pairs], [name for _, name in pairs])
    above = ancestor_paths(path)
    assert [len(each.split(":")) for each in above] == list(range(2, 2 * len(pairs), 2))
    assert all(path.startswith(f"{each}:") for each in above)
    assert parent_of(path) == (above[-1] if above else None)
    assert path not in above


@settings(deadline=None)
@given(name=names, more=names)
def test_a_name_that_begins_alike_is_not_above(name: str, more: str) -> None:
    assert f"ns:{name}" not in ancestor_paths(f"ns:{name}{more}:mci:web")
    assert f"ns:{name}" in ancestor_paths(f"ns:{name}:mci:web")


@settings(deadline=None)
@given(text=st.text())
def test_a_name_is_taken_exactly_when_the_rule_says_so(text: str) -> None:
    if NAME_RULE.fullmatch(text):
        assert check_name(text) == text
    else:
        with pytest.raises(Refused):
            check_name(text)


@settings(deadline=None)
@given(text=st.text(alphabet=st.sampled_from("ans:/.-_A1 '\n\0"), max_size=20))
def test_no_text_makes_a_path_that_does_not_check(text: str) -> None:
    try:
        path = expand_path(text, ("ns", "mci"))
    except Refused:
        return
    assert check_path(path) == path
    assert path.split(":")[::2] == ["ns", "mci"]


TREE_PATHS = [
    #  path                              kind      shape                    above                     short
    ("system:shop", "system", ("system",), [], "shop"),
    ("system:shop:a", "part", ("system", "part"), ["system:shop"], "shop/a"),
    ("system:shop:a:b", "part", ("system", "part"), ["system:shop", "system:shop:a"], "shop/a/b"),
    ("system:shop::deploy:d1", "deploy", ("system", "deploy"), ["system:shop"], "shop//d1"),
    ("system:shop:a::deploy:d1", "deploy", ("system", "deploy"), ["system:shop", "system:shop:a"], "shop/a//d1"),
    ("system:system:system", "part", ("system", "part"), ["system:system"], "system/system"),
]


@every_case(("path", "kind", "kinds", "above", "text"), TREE_PATHS, ids=lambda each: escaped(each))
def test_the_names_of_a_tree_follow_its_root_without_kinds(
    path: str, kind: str, kinds: tuple[str, ...], above: list[str], text: str
) -> None:
    assert check_path(path) == path
    assert (kind_of(path), kinds_on_path(path), ancestor_paths(path), short_path(path)) == (kind, kinds, above, text)
    assert parent_of(path) == (above[-1] if above else None)
    assert expand_path(text, kinds) == expand_path(path, kinds) == path


@every_case(
    "path",
    ["system", "system:", "system:shop:", "system:shop::", "system:shop::deploy", "system:shop:::deploy:d1",
     "system:shop:a::b", "system::a", "system:shop:a b", "system:shop:..", "system:shop::deploy:d1:more"],
)  # fmt: skip
def test_a_malformed_tree_path_is_refused(path: str) -> None:
    with pytest.raises(Refused) as caught:
        check_path(path)
    assert caught.value.category is Category.INVALID


@every_case(
    ("text", "scope"),
    [
        ("shop/a", ("system",)),
        ("shop", ("system", "part")),
        ("shop/", ("system", "part")),
        ("shop//a", ("system", "part")),
        ("shop/a//b", ("system", "part")),
        ("shop/d1", ("system", "deploy")),
        ("shop//a//d1", ("system", "deploy")),
        ("system:shop:a", ("system",)),
        ("system:shop::deploy:d1", ("system", "part")),
    ],
)
def test_a_short_form_that_does_not_fit_the_tree_is_refused(text: str, scope: tuple[str, ...]) -> None:
    with pytest.raises(Refused):
        expand_path(text, scope)


@settings(deadline=None)
@given(root=names, below=st.lists(names, max_size=5), tail=st.none() | names)
def test_any_tree_path_survives_its_short_form(root: str, below: list[str], tail: str | None) -> None:
    path = ":".join(["system", root, *below]) + (f"::deploy:{tail}" if tail else "")
    assert check_path(path) == path
    assert expand_path(short_path(path), kinds_on_path(path)) == path
    assert build_path(kinds_on_path(path), [root, *below, *([tail] if tail else [])]) == path
    assert all(path.startswith(f"{above}:") for above in ancestor_paths(path))
    assert len(ancestor_paths(path)) == len(below) + (1 if tail else 0)
