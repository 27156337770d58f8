"""Helpers of the providers' contract tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest

from domain.faults import Fault
from domain.ports import SHARED_RESOURCE_TYPES, Cloud, SharedResource, VmAnswer, VmFacts, VmOrder, VmState

REGION = "eu-central-1"
ELSEWHERE = "us-east-1"
TENANT = "ns:default"
PARENT = f"{TENANT}:mci:web"
SPEC = {"specId": "small", "imageId": "ubuntu-24.04", "label": {"team": "blue"}}


@dataclass(frozen=True)
class Subject:
    """A provider under test. `fault` gives it one more rule; `made` tells how many VMs it ever made."""

    cloud: Cloud
    fault: Callable[[Fault], Awaitable[None]]
    made: Callable[[], Awaitable[int]]


# An empty provider for one test. The mark `bare` asks for one that finds nothing prepared in its region.
Opener = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Subject]]


def orders(*names: str, token: str = "create") -> list[VmOrder]:
    return [VmOrder(f"{PARENT}:vm:{name}", f"{name}/{token}", spec=SPEC) for name in names]


def shared(what: str, token: str = "first", cloud_id: str = "", tenant: str = TENANT) -> SharedResource:
    return SharedResource(what, f"{what}/{token}", tenant, cloud_id)


async def prepare(cloud: Cloud, region: str = REGION, token: str = "first", tenant: str = TENANT) -> dict[str, str]:
    """All that a tenant's VMs share, by name."""
    made: dict[str, str] = {}
    for what in SHARED_RESOURCE_TYPES:
        made[what] = await cloud.prepare_resource(region, shared(what, token, tenant=tenant), made)
    return made


def on(vm: VmFacts, token: str, epoch: int = 0) -> VmOrder:
    return VmOrder(vm.path, f"{vm.path}/{token}", vm.cloud_id, epoch=epoch)


async def create(cloud: Cloud, *names: str) -> list[VmFacts]:
    answers = [await cloud.perform_orders("create", REGION, [order]) for order in orders(*names)]
    return [good(answer) for answer in answers]


def good(answers: Sequence[VmAnswer]) -> VmFacts:
    [answer] = answers
    assert isinstance(answer, VmFacts), answer
    return answer


async def do(cloud: Cloud, verb: str, order: VmOrder, region: str = REGION) -> VmAnswer:
    [answer] = await cloud.perform_orders(verb, region, [order])
    return answer


async def state_of(cloud: Cloud, vm: VmFacts) -> VmState:
    [facts] = await cloud.describe_vms(REGION, [on(vm, "")])
    assert facts is not None
    return facts.state
