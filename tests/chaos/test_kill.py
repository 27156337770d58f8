"""A worker killed with -9 at any step of any action is replaced, and the action ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from math import inf

from temporalio.api.enums.v1 import EventType

from tests.chaos.crash import at_once_name
from tests.chaos.families import COVERING, STORIES
from tests.chaos.killing import TRIES, Death, Score, in_worlds, kill_at, points_of, seed, time_for, told
from tests.chaos.stories import Story
from tests.chaos.world import World
from tests.patience import PATIENCE
from workers.service import WorkerService

SAMPLE = 6
AT_ONCE = 6
SHARE = 0.4  # of the long run's time
SHARE_OF_RARE = 0.1
REACHED = 0.9
NOTICED = 10  # seconds
TOLD_TO_STOP = EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED
# Reads: nothing of an action is lost when a worker dies in one. Faults are set by who tells the story.
READS = ("read_", "reading.", "facts.", "faults.", "schedule.")
BY_THE_CLOCK = ("seals.", "gauges.", "binding.", "retention.")  # what a worker does whether or not a story is told
NOT_PART_OF_AN_ACTION = {"verify", "cloud_faults", "crm_late", "login", "promote_build"}
# Activities that few stories pass, with those that do: the long run kills at every step of them.
RARE = (
    ("make_way", "mci made to make way"),
    ("adopt_vm", "mci orphan adopted"),
    ("permit_message", "mci continue"),
    ("permit_messages", "mci withdraw"),
    ("settle_removal", "systems teardown too late"),
    ("crm_probe", "edge dead webhook"),
    ("crm_hand_in", "edge answer by the link"),
    *(
        ("begin" if story.family == "edge" else "remove_orphan", str(story))  # of the edge family, its CRM removes it
        for story in STORIES
        if story.name == "orphan removed"
    ),
)
# What is done in the step that admits an action, and a story in which that is so.
AT_ONCE_IN = {at_once_name("lease", "start"): "leases start", at_once_name("lease", "end"): "leases end"}


def named(name: str) -> Story:
    [story] = [story for story in STORIES if str(story) == name]
    return story


def is_apart(point: str) -> bool:
    """A point that is no step of a story: a story that is told again may not pass it."""
    return point.startswith((*READS, *BY_THE_CLOCK)) or point.split(":")[0] in NOT_PART_OF_AN_ACTION


async def steps_of(place: World, story: Story) -> list[Death]:
    """A death at each point of a story, and at the second time of each commit that is passed more than once."""
    passed = Counter(point for point in await points_of(place, story) if not is_apart(point))
    again = [point for point, times in passed.items() if times > 1 and point.endswith("-commit")]
    return [*(Death(story, point) for point in passed), *(Death(story, point, after=point) for point in again)]


async def commits_at_once(place: World, story: Story, first: str) -> list[str]:
    """The commits from a point to the end of its step. None if the action was begun in some other way."""
    passed = await points_of(place, story)
    after = passed[passed.index(first) + 1 :] if first in passed else []
    within = dict.fromkeys(after[: after.index("begin:end") + 1] if "begin:end" in after else [])
    return [point for point in within if point.endswith("-commit") and not is_apart(point)]


async def test_a_story_passes_through_every_activity(places: list[World], stack: WorkerService) -> None:
    """All stories at once, in one world: a new activity without a story is found."""
    place, room = places[0], asyncio.Semaphore(AT_ONCE)
    stories = [story for story in STORIES if str(story) in COVERING]
    assert len(stories) == len(COVERING)

    async def tell(story: Story) -> str:
        async with room, asyncio.timeout(2 * PATIENCE), told(place, story) as path:
            outcome = await story.act(place, path)
            return "" if outcome.result == story.result else f"{story}: {outcome}"

    async with place.traced() as points:
        ends = await asyncio.gather(*map(tell, stories))
    assert not any(ends), [end for end in ends if end]
    passed = {point.split(":")[0] for point in points}
    forgotten = {name for name in stack.activity_names() if not is_apart(name)} - passed
    assert not forgotten, (
        f"no story passes through {forgotten}: tell one in tests/chaos/families/, and add it to COVERING there"
    )


async def test_a_dead_worker_is_noticed_in_seconds(places: list[World]) -> None:
    """Checked by the timeouts of every workflow and activity in the histories so far."""
    slow = set()
    async for history in places[0].client.list_workflows("TaskQueue = 'actions'").map_histories():
        for event in history.events:
            started, scheduled = (
                event.workflow_execution_started_event_attributes,
                event.activity_task_scheduled_event_attributes,
            )
            if event.HasField("workflow_execution_started_event_attributes"):
                slow |= {started.workflow_type.name} if started.workflow_task_timeout.seconds > NOTICED else set()
            if event.HasField("activity_task_scheduled_event_attributes"):
                limits = (
                    limit.ToTimedelta().total_seconds()  # a deadline of milliseconds shortens both
                    for limit in (scheduled.heartbeat_timeout, scheduled.start_to_close_timeout)
                )
                slow |= {scheduled.activity_type.name} if min(filter(None, limits)) > NOTICED else set()
    assert not slow, f"nobody would miss a worker that died in {slow}"


async def test_a_worker_killed_at_any_step_loses_nothing(places: list[World], chaos: bool, scores: list[Score]) -> None:
    number, score = seed(), Score("worker killed at a step")
    scores.append(score)
    chance, deaths, others = random.Random(number), list[Death](), list[Death]()
    steps: dict[str, list[Death]] = {}

    async def follow(place: World, story: Story) -> None:
        found = steps[str(story)] = await steps_of(place, story)
        deaths.extend(found if chaos else [chance.choice(found)])

    async def take_another(place: World, missed: Death) -> None:
        """If it was no step: a busy machine passes points, mostly heartbeats, that it does not pass the next time."""
        now = await steps_of(place, missed.story)
        sure = [step for step in steps[str(missed.story)] if step in now and not step.point.endswith(":heartbeat")]
        others.append(missed if missed in sure else chance.choice(sure))

    mine = [story for story in STORIES if story.family == os.environ.get("RATCHET_CHAOS_FAMILY", story.family)]
    await in_worlds(places, mine if chaos else chance.sample(mine, min(SAMPLE, len(mine))), follow, score)
    chance.shuffle(deaths)
    missed = await kill_at(places, deaths, score, time_for(SHARE) if chaos else inf)
    if not chaos:  # which may miss none, and the long run some
        await in_worlds(places, missed, take_another, score)
        missed = await kill_at(places, others, score)
    score.fault = f"worker killed at a step, of {len(deaths)} that the stories pass"
    told = f"RATCHET_CHAOS_SEED={number} repeats this run"
    assert score.clean, "\n".join([told, *score.lost, *score.doubled, *score.stuck])
    assert len(missed) <= (1 - REACHED) * (score.injected + len(missed)), f"not reached: {[*map(str, missed)]}; {told}"


async def test_a_worker_killed_in_an_activity_that_few_stories_pass_loses_nothing(
    places: list[World], chaos: bool, scores: list[Score]
) -> None:
    number, score = seed(), Score("worker killed in a rare activity")
    scores.append(score)
    chance, deaths = random.Random(number), list[Death]()

    async def follow(place: World, rare: tuple[str, str]) -> None:
        activity, story = rare[0], named(rare[1])
        passed = dict.fromkeys(point for point in await points_of(place, story) if not is_apart(point))
        assert any(point.startswith(f"{activity}:") for point in passed), f"{story} does not pass {activity}"
        deaths.extend(Death(story, point) for point in passed)

    if chaos:
        await in_worlds(places, RARE, follow, score)
        chance.shuffle(deaths)
    else:  # these two are known, and need not be looked for
        deaths = [Death(named(name), f"{activity}:{chance.choice(('start', 'end'))}") for activity, name in RARE]
    missed = await kill_at(places, deaths, score, time_for(SHARE_OF_RARE) if chaos else inf)
    told = f"RATCHET_CHAOS_SEED={number} repeats this run"
    assert score.clean, "\n".join([told, *score.lost, *score.doubled, *score.stuck])
    most = (1 - REACHED) * (score.injected + len(missed)) if chaos else 0
    assert len(missed) <= most, f"not reached: {[*map(str, missed)]}; {told}"


async def test_a_worker_killed_in_work_that_is_done_at_once_loses_nothing(
    places: list[World], chaos: bool, scores: list[Score], stack: WorkerService
) -> None:
    """After begin's commit, before and after what is done outside, before and after finish's commit: one step of its
    workflow, which another worker takes again from the start."""
    assert set(AT_ONCE_IN) == {at_once_name(*which) for which in stack.work_at_begin}, "tell a story of each"
    number, score = seed(), Score("worker killed in work that is done at once")
    scores.append(score)
    chance, deaths = random.Random(number), list[Death]()

    async def follow(place: World, name: str) -> None:
        story, first = named(AT_ONCE_IN[name]), f"{name}:start"
        for _ in range(TRIES):  # on a busy machine it may not be done at once
            if len(commits := await commits_at_once(place, story, first)) >= 4:
                break
        assert len(commits) >= 4, commits
        moments = [Death(story, first), *(Death(story, point, after=first) for point in commits)]
        deaths.extend(moments if chaos else [chance.choice(moments)])

    await in_worlds(places, AT_ONCE_IN, follow, score)
    missed = await kill_at(places, deaths, score)
    told = f"RATCHET_CHAOS_SEED={number} repeats this run"
    assert score.clean, "\n".join([told, *score.lost, *score.doubled, *score.stuck])
    assert not missed, f"not reached: {[*map(str, missed)]}; {told}"


async def test_a_worker_that_dies_when_it_has_been_told_to_stop_leaves_a_cancelled_action(places: list[World]) -> None:
    """What was under way is not begun again, only missed: no failure, for somebody wanted it to end."""
    place = places[0]
    story = named("machines machine cancel")
    async with told(place, story) as path:
        machine = story.object(path)
        ticket = await place.ask(machine, "destroy")
        action = place.client.get_workflow_handle(machine, run_id=ticket.run)
        await action.cancel()
        async with asyncio.timeout(PATIENCE):
            while not any(event.event_type == TOLD_TO_STOP for event in (await action.fetch_history()).events):
                await asyncio.sleep(0.01)
        await place.kill_worker()
        await place.start_worker()
        outcome = await place.end(ticket)
        assert (outcome.result, outcome.status) == ("cancelled", "RUNNING"), outcome
        assert await place.verify(*story.paths(path)) == []
