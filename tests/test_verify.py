"""`starter verify`: a healthy system keeps every promise, and a broken promise is found and named."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from activities.verify import MAX_LISTED, limit_findings
from domain import wire
from domain.invariants import InvariantViolation, VerificationReport
from domain.model import ReadQuery
from domain.ports import VmFacts, VmOrder
from providers.simulated.tables import vms
from store.schema import actions, history, locks, objects
from tests.user import User, spec

pytestmark = pytest.mark.stores("postgres")


async def verified(user: User) -> VerificationReport:
    return await user.asking.run_query(
        wire.VERIFY_ACTIVITY, ReadQuery(path=f"ns:{user.ns}"), VerificationReport, seconds=60
    )


async def broken(user: User, change: sa.Update | sa.Delete | sa.Insert) -> list[tuple[str, str]]:
    """What verify reports after the inventory was changed by hand."""
    await user.service.database.run_transaction(lambda connection: connection.execute(change).rowcount)
    return [(finding.invariant, finding.path) for finding in (await verified(user)).findings]


async def test_after_many_kinds_of_trouble_every_promise_is_kept(user: User) -> None:
    await user.fault("fail", vm="aws0-1", verb="create", times=1)
    await user.fault("lose-answer", verb="create", times=1)
    await user.do(user.mci(), "create", spec=spec(3))
    await user.do(user.mci(), "suspend")
    await user.refused(user.mci(), "reboot")
    await user.fault("fail", vm="gcp0-2", verb="resume", times=1)
    await user.do(user.mci(), "resume")
    await user.do(user.vm("gcp0-1"), "reboot", force=True)
    await user.do(user.mci(), "refine")
    await user.do(user.vm("aws0-2"), "terminate")
    found = await verified(user)
    assert found.findings == []
    assert found.looked_at["actions"] == 6
    assert found.looked_at["outside"] > 0
    await user.do(user.mci(), "delete")
    assert (await verified(user)).findings == []


async def test_an_action_that_runs_is_not_taken_for_a_broken_promise(user: User) -> None:
    await user.fault("hang", verb="create", seconds=3)
    ticket = await user.admitted(user.mci(), "create", spec=spec(1, ["aws"]))
    assert (await verified(user)).findings == []
    await user.asking.wait_for_outcome(user.mci(), ticket.run)


async def test_each_broken_promise_is_found_and_names_its_object(user: User) -> None:
    mci, vm = user.mci(), user.vm("aws0-1")
    await user.do(mci, "create", spec=spec(2, ["aws"]))
    here = objects.c.path == vm
    assert await broken(user, sa.update(objects).where(here).values(status="Suspended")) == [("I4", vm), ("I7", vm)]
    assert ("I2", vm) in await broken(user, sa.update(objects).where(here).values(status="Suspending"))
    await broken(user, sa.update(objects).where(here).values(status="Running"))
    held = {"path": vm, "owner": vm, "mode": "X", "run": "nobody", "action": "suspend", "since": sa.func.now()}
    assert await broken(user, sa.insert(locks).values(**held)) == [("I2", vm)]
    await broken(user, sa.delete(locks).where(locks.c.path == vm))
    mine = actions.c.path == mci
    assert await broken(user, sa.update(actions).where(mine).values(outcome=sa.null())) == [("I1", mci)]
    await broken(user, sa.update(actions).where(mine).values(outcome={"a": 1}))
    stray = sa.update(history).where(history.c.path == vm, history.c.to == "Running").values(epoch=10**18)
    assert await broken(user, stray) == [("I11", vm)]


async def test_an_orphan_a_ghost_and_a_mistaken_identity_are_found(user: User) -> None:
    await user.do(user.mci(), "create", spec=spec(3, ["aws"]))
    ghost, orphan, mistaken = (user.vm(f"aws0-{n}") for n in (1, 2, 3))
    await user.lose(ghost)
    assert (await verified(user)).findings == [
        InvariantViolation("I3", ghost, "is Running, but its cloud knows no such VM")
    ]
    await broken(user, sa.delete(objects).where(objects.c.path == ghost))
    found = await broken(user, sa.delete(objects).where(objects.c.path == orphan))
    assert ("I3", orphan) in found
    wrong = sa.update(objects).where(objects.c.path == mistaken).values(info={"cloud_id": "i-other", "generation": 1})
    found = await broken(user, wrong)
    assert found.count(("I3", mistaken)) == 2, "its own VM is gone, and another one lives"


async def test_two_actions_at_once_would_be_found(user: User) -> None:
    mci = user.mci()
    await user.do(mci, "create", spec=spec(1, ["aws"]))
    await user.do(mci, "suspend")
    await user.do(mci, "resume")

    def swap(connection: sa.Connection) -> None:
        """As if suspend had ended only after resume began."""
        last = sa.select(sa.func.max(history.c.seq)).scalar_subquery()
        epoch = sa.select(actions.c.epoch).where(actions.c.path == mci, actions.c.action == "suspend").scalar_subquery()
        ended = sa.select(sa.func.max(history.c.seq)).where(history.c.path == mci, history.c.epoch == epoch)
        connection.execute(sa.update(history).where(history.c.seq == ended.scalar_subquery()).values(seq=last + 1))

    await user.service.database.run_transaction(swap)
    assert ("I5", mci) in [(finding.invariant, finding.path) for finding in (await verified(user)).findings]


@pytest.mark.parametrize(("action", "state", "told"), [("suspend", "running", "Suspended"), ("", "stopped", "Running")])
async def test_a_vm_whose_power_was_switched_behind_our_back_is_named(
    user: User, action: str, state: str, told: str
) -> None:
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    if action:
        await user.do(user.mci(), action)
    switch = sa.update(vms).where(vms.c.path == user.vm("aws0-1")).values(state=state)
    await user.service.cloud_database.run_transaction(lambda connection: connection.execute(switch))
    assert (await verified(user)).findings == [
        InvariantViolation("I7", user.vm("aws0-1"), f"is {told}, but {state} in its cloud")
    ]


async def test_a_vm_in_a_place_of_which_we_have_no_record_is_found(user: User) -> None:
    order = VmOrder(user.vm("lost-1"), f"lost in {user.ns}")
    [made] = await user.service.simulated["gcp"].perform_orders("create", "r3999", [order])
    assert isinstance(made, VmFacts)
    [found] = (await verified(user)).findings
    assert made.created
    since = f"{made.created:%Y-%m-%d %H:%M:%SZ}"
    lives = f"is running in gcp/r3999 as {made.cloud_id} since {since}, ordered as lost in {user.ns}"
    assert (found.invariant, found.path) == ("I3", user.vm("lost-1"))
    assert found.what == f"{lives}, but no record knows it; see: starter orphans list"


def test_many_findings_of_one_invariant_hide_no_other() -> None:
    many = [InvariantViolation(invariant="I4", path=f"ns:a:mci:w{n}", what="x") for n in range(1_000)]
    late = InvariantViolation(invariant="I12", path="self-healing", what="gone")
    listed = limit_findings([*many, late])
    assert len(listed) == MAX_LISTED
    assert listed == [*many[: MAX_LISTED - 1], late]
