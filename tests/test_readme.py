"""README and docs/ agree with the program: generated parts, commands, links and whole sessions."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from cyclopts.exceptions import MissingArgumentError

from docs import generate
from domain import registry
from domain.faults import Fault
from providers.simulated.provider import SimulatedProvider
from starter import demo
from starter import stack as up
from starter.app import build_cli_app
from starter.command import run_command, take_profile_option
from starter.mci import demo as mci
from tests.cases import every_case
from tests.patience import PATIENCE, within
from tests.stack import patient_with_clouds
from workers import embedded
from workers.service import WorkerService
from workflows import action, admission

ROOT = generate.ROOT
PAGES = {name: (ROOT / name).read_text() for name in generate.PAGES}

EXAMPLE = ROOT / "examples" / "family"  # of docs/family.md: its files are named as they are once installed
FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
INLINE = re.compile(r"`((?:starter|python3 run\.py|temporal) [^`]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
FILE = re.compile(r"(?<![\w/.-])((?:\.\./)?[a-z.]+(?:/[\w-]+)+\.(?:py|md|yaml|png|json))\b")
OURS = re.compile(r"\$? *((?:starter|python3 run\.py|temporal)(?: .*)?)")
SCRIPTS = ("starter", "python3 run.py")


def commands() -> Iterator[tuple[str, str]]:
    """Every command line that a page shows: in blocks, and in the running text."""
    for page, text in PAGES.items():
        blocks = "\n".join(FENCED.findall(text)) + "\n".join(re.findall(r"(?m)^    (.*)$", FENCED.sub("", text)))
        lines = blocks.replace("\\\n", " ").splitlines()
        found = [line[1] for line in map(OURS.fullmatch, lines) if line] + INLINE.findall(FENCED.sub("", text))
        yield from ((page, " ".join(words.split())) for words in dict.fromkeys(found))


def once(found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each command with one of its pages: to parse it takes long, and it means the same on every page."""
    return [(page, command) for command, page in {command: page for page, command in found}.items()]


def words_of(command: str) -> list[str]:
    return shlex.split(command, comments=True)


OF_STARTER = once(command for command in commands() if command[1].startswith(SCRIPTS))
OF_TEMPORAL = once(command for command in commands() if command[1].startswith("temporal "))


@every_case("page", PAGES)
def test_what_the_code_knows_is_shown_as_the_code_knows_it(page: str) -> None:
    assert generate.fill_generated_parts(PAGES[page]) == PAGES[page], f"{page} is out of date; run: {generate.COMMAND}"


def test_every_generated_part_is_shown_somewhere() -> None:
    shown = {name for text in PAGES.values() for _, name, _ in generate.BLOCK.findall(text)}
    assert shown >= set(generate.PARTS)
    wanted = {f"states-{kind}" for kind in registry.KINDS}
    assert shown >= wanted, "every kind's table is in the docs"


@every_case("kind", list(registry.KINDS))
def test_every_verdict_is_a_status_or_a_word_for_people(kind: str) -> None:
    table = registry.KINDS[kind].table
    words = {"no", "with force", "nothing to do", "yes (hidden)", *table.statuses}
    lines = generate.verdicts_table(kind).splitlines()[2:]
    assert {cell.strip() for line in lines for cell in line.strip("|").split("|")} <= words


def test_the_two_first_commands_stand_at_the_top_of_the_readme() -> None:
    beginning = PAGES["README.md"][:1_000]
    assert "    python3 run.py " in beginning
    assert "    python3 run.py test" in beginning


@every_case(("page", "command"), OF_STARTER)
def test_every_command_that_is_shown_exists_with_its_options(page: str, command: str) -> None:
    words = words_of(command.replace("python3 run.py", "starter", 1))[1:]
    of_run = re.findall(r'case \["(\w+)"', (ROOT / "run.py").read_text())
    if command.startswith("python3 run.py") and (not words or words[0] in of_run):
        return
    try:
        build_cli_app().parse_args(take_profile_option(words)[1])
    except MissingArgumentError:
        if len(words) > 2:  # else a sentence only names the command
            raise


def test_an_option_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(Exception, match="--fast"):
        build_cli_app().parse_args(["mci", "suspend", "default/web", "--fast"])


@every_case(("page", "command"), OF_TEMPORAL)
def test_every_option_given_to_temporal_exists(page: str, command: str) -> None:
    _, *words = words_of(command)
    options = [word for word in words if word.startswith("--")]
    verbs = words[: words.index(options[0])] if options else words
    told = "".join(
        subprocess.run([embedded.find_temporal_binary(), *asked], capture_output=True, text=True, check=True).stdout
        for asked in ([*verbs, "--help"], ["options"])
    )
    assert all(f"{option} " in told for option in options)


@every_case("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target, anchor in LINK.findall(PAGES[page]):
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), f"{page} links to {target}"
        assert not anchor or anchor in anchors(file.read_text()), f"{page} links to #{anchor}"


def anchors(text: str) -> list[str]:
    """What headings are called in links."""
    headings = re.findall(r"(?m)^#+ (.*)$", FENCED.sub("", text))
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@every_case("page", PAGES)
def test_every_file_that_is_named_exists(page: str) -> None:
    for name in FILE.findall(PAGES[page]):
        if re.search("thing|/moon", name):  # a family and a provider that nobody has written yet
            continue
        folders = (ROOT, (ROOT / page).parent, EXAMPLE)
        assert any((folder / name).exists() for folder in folders), f"{page} names {name}"


@pytest.mark.parametrize("head", ["| who | tries | stopped by | test", "| attack | stopped by | test"])
def test_every_attack_in_the_threat_model_has_a_test_that_exists(head: str) -> None:
    """After a file, the words of a test's name; without any, the whole file."""
    page = (ROOT / "docs" / "security.md").read_text()
    rows = page.partition(head)[2].partition("\n\n")[0].splitlines()[2:]
    assert rows
    for row in rows:
        cell = row.strip("| ").rpartition("|")[2]
        rooms = re.findall(r"`(test_[a-z]+)/`", cell) or [""]
        named = re.findall(r"`((?:test_[a-z]+/)?test_[a-z0-9_]+\.py)`(?:: ([^`]*))?", cell)
        assert named, row
        for file, words in named:
            text = "".join((ROOT / "tests" / room / file).read_text() for room in rooms)
            tests = re.findall(r"def (test_\w+)", text)
            slugs = [re.sub(r"\W+", "_", part.strip(" ,|")) for part in words.split(";") if part.strip(" ,|")]
            missing = [slug for slug in slugs if not any(slug in test for test in tests)]
            assert tests, file
            assert not missing, (file, missing)


def test_the_demo_and_up_say_what_the_readme_shows() -> None:
    shown = "\n".join(re.findall(r"<!-- (?:demo|up) -->\n```console\n(.*?)```", PAGES["README.md"], re.DOTALL))
    spoken = inspect.getsource(demo) + inspect.getsource(mci) + inspect.getsource(up)
    remarks = re.findall(r"(?m)^\d\. \w+: (.*)$", shown)
    assert len(remarks) == 4
    for words in (*remarks, "Starting a Temporal server and a worker", "Six VMs in three clouds", "Ratchet is up."):
        assert words in shown
        assert words in spoken


def test_refusals_of_plain_starts_are_quoted_from_the_code() -> None:
    quoted = re.findall(r"(?m)^\| .*(?:workflow ID|`preempt`).* \| `([^`]+)` \|$", PAGES["docs/temporal.md"])
    fixed = [text.replace("ns:default:mci:web", "").replace("terminate", "") for text in quoted]
    assert len(fixed) == 3
    code = inspect.getsource(action) + inspect.getsource(admission)
    assert all(words in code for words in fixed), fixed


class Terminal:
    """Runs the command lines of a page, in a namespace whose name is as long as `default`, so that columns stay."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ns: str, stack: WorkerService) -> None:
        self._monkeypatch = monkeypatch
        self._ns = ns
        self._stack = stack
        self._code = 0
        self._waiting = asyncio.Event()

    async def hang(self, _cloud: SimulatedProvider, delays: Sequence[Fault]) -> None:
        """A call that hangs does so until the page waits for its action, however long the machine takes until then."""
        if delays:
            await self._waiting.wait()

    async def type(self, command: str) -> str:
        if command == "echo $?":
            return f"{self._code}\n"
        if re.search(r"(?:starter|run\.py) wait\b", command):
            self._waiting.set()
        elif "fault add hang" in command:
            self._waiting.clear()
        words = words_of(re.sub(r"\bdefault/|(?<=ns:)default:", lambda found: self._ns + found[0][-1], command))
        if words[0] == "temporal":
            shown = await self._temporal(words[1:])
        else:
            script = "python3 run.py" if words[0] == "python3" else "starter"
            self._monkeypatch.setenv("RATCHET_COMMAND", script)
            words = words[len(script.split()) :]
            shown = await (self._wait_briefly(words) if "--timeout" in words else self._starter(words))
        return shown.replace(self._ns, "default")

    async def _wait_briefly(self, words: list[str]) -> str:
        """A wait that ends before the action: after as long as it takes to find that, and here to prepare the MCI."""
        *wait, name, option, told = words
        seconds = longer = int(told.rstrip("s"))
        while "/history" not in (shown := await self._starter([*wait, name, option, f"{longer}s"])):
            longer *= 2
        path = f"ns:{name.replace('/', ':mci:')}"
        async with within(PATIENCE, f"{path} is not prepared"):
            while (await self._stack.inventory.read_object(path)).status == "Preparing":
                await asyncio.sleep(0.05)
        return shown.replace(f"within {longer} s", f"within {seconds} s")

    async def _starter(self, words: list[str]) -> str:
        screen = io.StringIO()
        self._monkeypatch.setattr(sys, "stdin", io.StringIO())
        with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
            self._code = await run_command(words)
        return screen.getvalue()

    async def _temporal(self, words: list[str]) -> str:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            embedded.find_temporal_binary(), *words, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
        screen, _ = await process.communicate()
        self._code = process.returncode or 0
        return screen.decode()


@pytest.fixture
async def shell(
    monkeypatch: pytest.MonkeyPatch,
    temporal_address: str,
    home: Path,
    stack: WorkerService,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Terminal]:
    """A terminal in a fresh clone, with a stack that runs and clouds that have no faults."""
    for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RATCHET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    monkeypatch.setenv("RATCHET_HOME", str(home))
    monkeypatch.setenv("LOGNAME", "me")
    monkeypatch.chdir(ROOT)
    ns = f"readm{list(PAGES).index(request.node.callspec.params['page']):02}"
    terminal = Terminal(monkeypatch, ns, stack)
    monkeypatch.setattr(SimulatedProvider, "simulate_delays", lambda cloud, delays, _: terminal.hang(cloud, delays))
    await terminal.type("starter cloud fault clear")
    with patient_with_clouds(stack, call_seconds=PATIENCE):
        yield terminal
    await terminal.type("starter cloud fault clear")


def session(page: str) -> list[tuple[str, str]]:
    """The commands of a page's sessions, each with what it shows."""
    blocks = re.findall(r"<!-- session -->\n```console\n(.*?)```", PAGES[page], re.DOTALL)
    typed = re.split(r"(?m)^\$ ", "".join(blocks).replace("\\\n", " "))[1:]
    return [(command, shown) for command, _, shown in (each.partition("\n") for each in typed)]


def plain(text: str) -> str:
    """Without what is different each time: runs, times, ports, the clouds' own numbers, and lines of progress."""
    for pattern, word in (
        (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "RUN"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "WHEN"),
        (r"http://127\.0\.0\.1:\d+", "http://WEB-UI"),
        (r"\b(\w+)-i-[0-9a-f]+\b", r"\1-ID"),
        (r"\b10(?:\.\d+){3}\b", "ADDRESS"),
        (r"(?m)^default/\S+: .*\n", ""),  # a terminal shows them on one line that changes, and takes it away
        (r"in \d+ calls", "in SOME calls"),  # other places of the shared stack are asked too
        (r"(?m) +$", ""),
    ):
        text = re.sub(pattern, word, text)
    return text.strip()


@pytest.mark.parametrize("page", [page for page in PAGES if session(page)])
async def test_sessions_go_as_they_are_shown(page: str, shell: Terminal) -> None:
    for command, shown in session(page):
        assert plain(await shell.type(command)) == plain(shown), command
