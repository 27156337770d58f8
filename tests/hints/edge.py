"""Cloudlets, clusters, apps."""

from __future__ import annotations

from tests.hints.story import HintStory

STORIES: tuple[HintStory, ...] = ()
UNTRIED = dict.fromkeys(
    (
        "… is not possible: no CRM is connected to …",
        "upgrade is not possible: no CRM is connected to … that could start another one",
        "delete is not allowed for Cloudlet …: it has …, the first is …",
        "recreate is only for what its cloudlet has lost: … is not missing",
        "there is no such Cloudlet: …",
        "there is no such ClusterInst: …",
        "… of AppInst needs its ClusterInst Ready: … is …",
        "the spec is not valid: …",
    ),
    "needs a CRM that runs: tests/test_edge/test_repairs.py, test_commands.py and test_instances.py",
)
