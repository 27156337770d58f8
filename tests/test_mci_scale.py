"""scale-out and scale-in of a subgroup: numbers are never used again, the highest go first."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from domain.errors import Category
from domain.model import ActionResult
from store.schema import objects
from tests.user import User

pytestmark = pytest.mark.stores("postgres")


async def names(user: User) -> list[str]:
    return sorted(vm.path.rsplit(":", 1)[1] for vm in (await user.see(user.mci())).members)


async def test_scale_out_goes_on_after_the_highest_number_and_copies_labels(user: User) -> None:
    spec = user.groups("aws", "gcp")
    spec["subGroups"][0] |= {"label": {"tier": "web"}, "specId": "large"}
    await user.do(user.mci(), "create", spec=spec)
    outcome = await user.do(user.mci(), "scale-out", spec={"subGroup": "aws", "count": 3})
    assert (outcome.result, outcome.status, outcome.done) == (ActionResult.SUCCEEDED, "Running:7 (R:7/7)", 3)
    assert await names(user) == ["aws-1", "aws-2", "aws-3", "aws-4", "aws-5", "gcp-1", "gcp-2"]
    old, new = await user.see(user.vm("aws-1")), await user.see(user.vm("aws-5"))
    assert new.spec == old.spec
    assert new.spec["label"] == {"tier": "web"}
    assert (new.placement, new.status) == (old.placement, "Running")
    await user.books_agree()


async def test_scale_in_takes_the_highest_numbers_first(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups(size=12))
    outcome = await user.do(user.mci(), "scale-in", spec={"subGroup": "aws", "count": 3})
    assert (outcome.result, outcome.status, outcome.done) == (ActionResult.SUCCEEDED, "Running:9 (R:9/9)", 3)
    assert await names(user) == [f"aws-{n}" for n in range(1, 10)]
    gone = (await user.books())[user.vm("aws-12")]
    assert [vm.state for vm in gone] == ["terminated"]


async def test_a_number_is_never_used_again_so_that_scale_out_never_overwrites(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups(size=3))
    await user.do(user.mci(), "scale-in", spec={"subGroup": "aws", "count": 2})
    await user.do(user.mci(), "scale-out", spec={"subGroup": "aws", "count": 2})
    assert await names(user) == ["aws-1", "aws-4", "aws-5"]
    assert {path.rsplit(":", 1)[1]: len(vms) for path, vms in (await user.books()).items()} == {
        f"aws-{n}": 1 for n in range(1, 6)
    }


async def test_numbers_are_known_even_if_the_mci_was_made_before_they_were_counted(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups(size=4))
    await user.do(user.mci(), "scale-in", spec={"subGroup": "aws", "count": 1})

    def forget(connection: sa.Connection) -> None:
        connection.execute(sa.update(objects).where(objects.c.path == user.mci()).values(info={"generation": 1}))

    await user.service.database.run_transaction(forget)
    await user.do(user.mci(), "scale-out", spec={"subGroup": "aws"})
    assert await names(user) == ["aws-1", "aws-2", "aws-3", "aws-5"]


async def test_a_scale_out_that_fails_in_part_leaves_failed_vms_and_the_mci_usable(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("fail", vm="aws-4", verb="create", message="bad luck")
    outcome = await user.do(user.mci(), "scale-out", spec={"subGroup": "aws", "count": 2})
    assert (outcome.result, outcome.status, outcome.failed) == (ActionResult.PARTIAL, "Partial-Running:3 (R:3/4)", 1)
    assert (await user.do(user.mci(), "refine")).status == "Running:3 (R:3/3)"
    await user.do(user.mci(), "scale-out", spec={"subGroup": "aws"})
    assert await names(user) == ["aws-1", "aws-2", "aws-3", "aws-5"]


async def test_a_scale_in_that_fails_keeps_the_record_of_what_lives(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups(size=3))
    await user.fault("fail", vm="aws-3", verb="terminate", message="protected")
    outcome = await user.do(user.mci(), "scale-in", spec={"subGroup": "aws", "count": 2})
    assert (outcome.result, outcome.done, outcome.failed) == (ActionResult.PARTIAL, 1, 1)
    assert await names(user) == ["aws-1", "aws-3"]
    await user.books_agree()


async def test_a_lost_answer_of_scale_out_makes_exactly_one_vm(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("lose-answer", verb="create", times=2)
    await user.do(user.mci(), "scale-out", spec={"subGroup": "aws", "count": 2})
    assert {len(vms) for vms in (await user.books()).values()} == {1}
    await user.books_agree()


async def test_a_scale_out_that_is_cancelled_ends_with_the_truth(user: User, patient: None) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    await user.fault("hang", vm="aws-4", verb="create", seconds=600)
    ticket = await user.admitted(user.mci(), "scale-out", spec={"subGroup": "aws", "count": 2})
    await user.until_delayed(user.vm("aws-4"))
    await user.asking.cancel_action(user.mci())
    assert (await user.asking.wait_for_outcome(ticket.path, ticket.run)).result is ActionResult.CANCELLED
    await user.heal_faults()
    await user.books_agree()


async def test_a_subgroup_can_be_emptied_and_filled_again(user: User) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    assert (await user.do(user.mci(), "scale-in", spec={"subGroup": "aws", "count": 2})).status == "Empty"
    assert (await user.do(user.mci(), "scale-out", spec={"subGroup": "aws"})).status == "Running:1 (R:1/1)"
    assert await names(user) == ["aws-3"]


@pytest.mark.parametrize(
    ("action", "spec", "category", "told"),
    [
        ("scale-out", {"subGroup": "back"}, Category.INVALID, "there is no subgroup 'back'"),
        ("scale-in", {"subGroup": "back"}, Category.INVALID, "there is no subgroup 'back'"),
        ("scale-in", {"subGroup": "aws", "count": 3}, Category.NOT_ALLOWED, "has 2 VMs: 3 cannot be removed"),
        ("scale-out", {"subGroup": "aws", "count": 19_999}, Category.QUOTA, "20001 VMs are too many"),
    ],
)
async def test_a_change_of_size_that_cannot_be_is_refused_and_changes_nothing(
    user: User, action: str, spec: dict[str, object], category: Category, told: str
) -> None:
    await user.do(user.mci(), "create", spec=user.groups())
    before = await user.history(user.mci())
    ticket = await user.ask(user.mci(), action, spec=spec)
    assert ticket.admission.refusal
    assert ticket.admission.refusal.category is category
    assert told in ticket.admission.refusal.message
    assert await user.history(user.mci()) == before


async def test_a_failed_mci_does_not_change_its_size(user: User) -> None:
    await user.fault("fail", verb="create")
    await user.do(user.mci(), "create", spec=user.groups())
    assert await user.refused(user.mci(), "scale-out", spec={"subGroup": "aws"}) == (
        "scale-out is not allowed for MCI under Failed"
    )
