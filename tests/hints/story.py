"""One refusal: how it comes about, what the hint says, and that following the hint changes the situation."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from starter.errors import ExitCode
from tests.patience import PATIENCE
from tests.test_cli.shell import Cli, Ran

COMMAND = re.compile(r"starter ([^;,]+)")
REFUSALS = (ExitCode.USAGE, ExitCode.REFUSED, ExitCode.BUSY, ExitCode.NOT_FOUND)


@dataclass(frozen=True)
class HintStory:
    """A refused command. In all words, `{n}` is a name that no other test uses, and `{dir}` has the files.

    The first command of the hint is run as it is printed. Then the refused command is admitted; or `again`, if the hint
    says what else to ask for; or the hint's command has shown what it promised (`shows`).
    """

    why: str  # the message, as the table of refusals in the family's page has it
    refused: str
    before: tuple[str, ...] = ()
    again: str = ""
    shows: str = ""
    files: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)  # what a reader writes for a word in capitals


class HintRunner:
    """Types the commands of a story."""

    def __init__(self, cli: Cli, name: str, folder: Path) -> None:
        self._cli, self._name, self._folder = cli, name, folder

    async def run_story(self, story: HintStory) -> None:
        for name, text in story.files.items():
            (self._folder / name).write_text(text.replace("{n}", self._name))
        for words in story.before:
            await self.succeed(words)
        refused = await self.type_words(story.refused)
        assert refused.code in REFUSALS, refused
        message, hint = read_error(refused)
        assert matches_template(message, story.why), f"{message!r} is not {story.why!r}"
        commands = COMMAND.findall(hint)
        assert commands or story.again, f"the hint {hint!r} names no command: say what a reader does"
        if commands:
            followed = await self.type_words(" ".join(story.chosen.get(word, word) for word in commands[0].split()))
            assert followed.code == ExitCode.DONE, f"the hint {hint!r} led to: {followed.err}"
            assert self._fill(story.shows) in followed.out, followed.out
        if not story.shows:
            await self.succeed(story.again or story.refused)

    async def succeed(self, words: str) -> None:
        if words.startswith("until "):
            await self._until_status(*words.split()[1:])
            return
        ran = await self.type_words(words)
        assert ran.code == ExitCode.DONE, f"{words}: {ran.err}"

    async def type_words(self, words: str) -> Ran:
        return await self._cli(*shlex.split(self._fill(words)))

    async def _until_status(self, path: str, status: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while json.loads((await self.type_words(f"get {path} -o json")).out)["status"] != status:
                await asyncio.sleep(0.1)

    def _fill(self, words: str) -> str:
        return words.replace("{n}", self._name).replace("{dir}", str(self._folder))


def read_error(ran: Ran) -> tuple[str, str]:
    """The reason and the hint of a printed error."""
    why, hint = re.search(r"^  why: (.*)\n  hint: (.*)$", ran.err, re.MULTILINE | re.DOTALL).groups()  # type: ignore[union-attr]
    return why, hint.strip()


def matches_template(message: str, template: str) -> bool:
    """Is this the message with `…` for its gaps?"""
    return re.fullmatch(".*".join(map(re.escape, template.split("…"))), message, re.DOTALL) is not None
