"""What next is always right: every refusal is provoked, its hint is typed as it is printed, and that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.refusals import refusals_of_family
from tests.cases import every_case
from tests.hints.story import HintRunner, HintStory
from tests.registry import NAMES, module_of
from tests.test_cli.conftest import cli  # noqa: F401  the commands, on the shared server
from tests.test_cli.shell import Cli


def stories_of(family: str) -> tuple[tuple[HintStory, ...], dict[str, str]]:
    """The stories of a family, and why others are not tried. A family whose hints name no command has no file."""
    try:
        own = module_of(family, "tests.hints")
    except LookupError:
        return (), {}
    return own.STORIES, own.UNTRIED


STORIES = {f"{family}: {story.why}": story for family in NAMES for story in stories_of(family)[0]}


@pytest.fixture
def runner(cli: Cli, ns: str, tmp_path: Path) -> HintRunner:  # noqa: F811
    return HintRunner(cli, ns, tmp_path)


@pytest.mark.parametrize("title", STORIES)
async def test_a_hint_that_is_followed_changes_the_situation(title: str, runner: HintRunner) -> None:
    story: HintStory = STORIES[title]
    await runner.run_story(story)


@every_case("family", NAMES)
def test_every_hint_with_a_command_is_tried_or_says_why_not(family: str) -> None:
    stories, untried = stories_of(family)
    known = {story.why for story in stories} | set(untried)
    rows = {message: hint for _, message, hint in refusals_of_family(family)}
    with_commands = {
        message for message, hint in rows.items() if "starter " in hint or hint.endswith(("it: …", "first: …"))
    }
    assert with_commands - known == set()
    assert known - set(rows) == set(), "no such refusal any more"
