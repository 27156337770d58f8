"""Bad input: an error with what, why and hint, the right exit code, and no change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from client.actions import ActionClient
from domain.limits import MAX_SPEC_BYTES
from starter.errors import ExitCode
from tests.patience import PATIENCE
from tests.test_cli.shell import Cli, State, assert_told

USAGE, MISSING = ExitCode.USAGE, ExitCode.NOT_FOUND
VM = "{name: front, csp: aws, region: r1}"


def group(more: str) -> str:
    """A spec with one more field in its only group."""
    return f"subGroups: [{{name: a, csp: aws, region: r, {more}}}]"


# fmt: off
WORDS = [
    # what is wrong, the words, the exit code, what the message says
    ("an unknown noun",        "rocket launch default/web",                   USAGE,   'Unknown command "rocket"'),
    ("an unknown kind",        "list rocket",                                 USAGE,   "unknown kind 'rocket'"),
    ("an unknown kind's path", "get rocket:one",                              USAGE,   "unknown kind 'rocket'"),
    ("an unknown action",      "mci explode default/web",                     USAGE,   'Unknown command "explode"'),
    ("an option alone",        "--port 7",                                    USAGE,   "starter up --port"),
    ("no namespace",           "mci suspend my",                              USAGE,   "such as default/my"),
    ("an action to check",     "check ns:default:mci:web explode",            USAGE,   "unknown action 'explode'"),
    ("no action for a VM",     "check ns:a:mci:b:vm:c-1 create",              USAGE,   "unknown action 'create'"),
    ("an unknown option",      "mci suspend default/web --fast",              USAGE,   "--fast"),
    ("no object",              "mci suspend",                                 USAGE,   "TARGET"),
    ("one word too many",      "mci suspend default/web more",                USAGE,   "more"),
    ("an unknown output",      "mci status default/web -o xml",               USAGE,   "xml"),
    ("too few names",          "mci suspend web",                             USAGE,   "does not name an object"),
    ("too many names",         "mci suspend default/web/front-1",             USAGE,   "does not name an object"),
    ("a path of another kind", "mci suspend ns:default:mci:web:vm:front-1",   USAGE,   "does not name an object"),
    ("no path at all",         "get a/b/c/d/e/f/-g",                          USAGE,   "does not name one object"),
    ("half a path",            "get ns:default:mci",                          USAGE,   "kind:name pairs"),
    ("a bad name",             "mci suspend default/-web",                    USAGE,   "bad name '-web'"),
    ("an empty name",          "mci suspend default/",                        USAGE,   "bad name ''"),
    ("a name too long",        f"mci suspend default/{'x' * 64}",             USAGE,   "1 to 63 letters"),
    ("a path too long",        f"get ns:{'x' * 700}:mci:web",                 USAGE,   "too long"),
    ("path traversal",         "mci suspend ../etc",                          USAGE,   "bad name '..'"),
    ("an absolute file",       "mci suspend /etc/passwd",                     USAGE,   "does not name an object"),
    ("no number",              "list mci --limit many",                       USAGE,   "many"),
    ("no duration",            "mci suspend default/web --timeout soon",      USAGE,   "bad --timeout 'soon'"),
    ("a tale for a reason",    f"mci suspend default/web --reason {'x' * 501}", USAGE, "reason: String should have"),
    ("an unknown queue",       "worker --queues cloud-mars",                  USAGE,   "unknown queue 'cloud-mars'"),
    ("an unknown fault",       "cloud fault add sabotage",                    USAGE,   "or 'lie', not 'sabotage'"),
    ("a fault for no VM",      "cloud fault add fail --times 0",              USAGE,   "times"),
    ("a missing MCI",          "mci suspend nobody/nothing",                  MISSING, "no such MCI: ns:nobody:mci"),
    ("a missing VM",           "vm reboot nobody/nothing/at-all",             MISSING, "there is no such VM"),
    ("nothing to show",        "mci status nobody/nothing",                   MISSING, "there is no such MCI"),
    ("nothing to tell",        "history ns:nobody:mci:nothing",               MISSING, "there is no such MCI"),
    ("nothing to check",       "check ns:nobody:mci:nothing suspend",         MISSING, "there is no such MCI"),
    ("nothing to wait for",    "wait ns:nobody:mci:nobody",                   MISSING, "there was no action"),
    ("nothing to cancel",      "cancel ns:nobody:mci:nobody",                 MISSING, "there was no action"),
]

SPECS = [
    # what is wrong, the spec, what the message says
    ("malformed YAML",          "subGroups: [",                                           "line 1, column 13"),
    ("malformed JSON",          '{"subGroups": [}',                                       "line 1"),
    ("binary",                  "\x00\x01",                                               "special characters"),
    ("nothing in it",           "",                                                       "this is empty"),
    ("a list",                  "- 1",                                                    "a mapping is wanted"),
    ("an unknown field",        f"subGroups: [{VM}]\nsubgroups: []",                      "did you mean subGroups?"),
    ("an unknown field below",  group("size: 3"),                                         "subGroups.0.size: there"),
    ("a missing field",         "subGroups: [{name: a, csp: aws}]",                       "subGroups.0: say where"),
    ("no groups",               "subGroups: []",                                          "List should have at least"),
    ("a bad group name",        "subGroups: [{name: a/b, csp: aws, region: r}]",          "bad name 'a/b'"),
    ("a bad cloud's name",      "subGroups: [{name: a, csp: a b, region: r}]",            "bad name 'a b'"),
    ("the same group twice",    f"subGroups: [{VM}, {VM}]",                               "must differ: front"),
    ("size 0",                  group("subGroupSize: 0"),                                 "subGroupSize"),
    ("size -1",                 group("subGroupSize: -1"),                                "subGroupSize"),
    ("size 10^9",               group("subGroupSize: 1000000000"),                        "subGroupSize"),
    ("size of words",           group("subGroupSize: six"),                               "valid integer"),
    ("a bomb of aliases",       "a: &a [x, x]\nb: &b [*a, *a]\nsubGroups: [*b, *b]",      "aliases are not taken"),
    ("a key twice",             f"subGroups: [{VM}]\nsubGroups: [{VM}]",                  "'subGroups' occurs twice"),
    ("a date",                  "description: 2026-01-01\nsubGroups: []",                 "put it into quotes"),
    ("a tag of Python",         "description: !!python/object/apply:os.getcwd []",        "determine a constructor"),
    ("nesting without end",     "[" * 5_000,                                              "nested too deep"),
    ("too much of it",          "#" * (MAX_SPEC_BYTES + 1),                               "larger than 256 KiB"),
]
# fmt: on


@pytest.mark.parametrize(("words", "code", "says"), [case[1:] for case in WORDS], ids=[case[0] for case in WORDS])
async def test_bad_words_change_nothing(
    cli: Cli, state: Callable[[], asyncio.Future[State]], words: str, code: int, says: str
) -> None:
    before = await state()
    assert_told(await cli(words), code, says)
    actions = 1 if code == ExitCode.NOT_FOUND and words.startswith(("mci suspend", "vm")) else 0  # asked, and refused
    async with asyncio.timeout(PATIENCE):
        while (await state())[1] < before[1] + actions:  # Temporal lists it a moment later
            await asyncio.sleep(0.02)
    assert await state() == (before[0], before[1] + actions)


@pytest.mark.parametrize(("spec", "says"), [case[1:] for case in SPECS], ids=[case[0] for case in SPECS])
async def test_a_bad_spec_changes_nothing(
    cli: Cli, state: Callable[[], asyncio.Future[State]], spec: str, says: str
) -> None:
    before = await state()
    assert_told(await cli("mci create default/bad -f -", stdin=spec), ExitCode.USAGE, says)
    assert await state() == before


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", "a\x00", "a\u202eb", "a b", "ünïcode"])
async def test_control_characters_are_refused_and_not_printed(cli: Cli, asking: ActionClient, name: str) -> None:
    ran = await cli("mci suspend", f"default/{name}")
    assert_told(ran, ExitCode.USAGE, f"bad name {name!a}")


@pytest.mark.parametrize("file", ["no/such/file.yaml", "."])
async def test_a_file_that_cannot_be_read_is_named(cli: Cli, asking: ActionClient, file: str) -> None:
    assert_told(await cli("mci create default/bad -f", file), ExitCode.USAGE, f"cannot use {file} as a spec")


@pytest.mark.parametrize(
    "words",
    [
        *("mci create my", "mci create a/b/c", "check my create", "check default/no create", "system deploy shop bad"),
        *("system diff no-such-system", "system diff shop d1", "lease create p/l --end bad", "policy create x"),
    ],
)
async def test_a_missing_file_is_told_before_anything_else_is_judged(cli: Cli, words: str) -> None:
    assert_told(await cli(f"{words} -f missing.yaml"), ExitCode.USAGE, "missing.yaml as a spec: No such file")


async def test_a_file_that_is_not_text_is_refused(cli: Cli, asking: ActionClient, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_bytes(b"\xff\xfe\xfa")
    assert_told(await cli("mci create default/bad -f", str(tmp_path / "spec.yaml")), ExitCode.USAGE, "not UTF-8")


async def test_json_with_tabs_is_taken(cli: Cli, asking: ActionClient, ns: str) -> None:
    spec = '{\n\t"subGroups": [\n\t\t{"name": "a", "csp": "aws", "region": "r1"}\n\t]\n}'
    assert (await cli(f"mci create {ns}/json -f -", stdin=spec)).code == ExitCode.DONE
