"""MCIs and VMs."""

from __future__ import annotations

from tests.hints.story import HintStory

WEB = "subGroups: [{name: front, subGroupSize: 2, csp: aws, region: eu-central-1}]"
FILES = {"web.yaml": WEB, "real.yaml": WEB.replace("region: ", "provider: openstack, region: ")}
CREATE = "mci create {n}/web -f {dir}/web.yaml"

STORIES = (
    HintStory(
        "there is no such MCI: …", "mci scale-out {n}/x --sub-group front", (CREATE,), shows="{n}/web", files=FILES
    ),
    HintStory(
        "subgroup … has …: … cannot be removed",
        "mci scale-in {n}/web --sub-group front --count 3 --yes",
        (CREATE,),
        shows="front-2",
        files=FILES,
    ),
    HintStory("…/… is served by …, not by …", "mci create {n}/web -f {dir}/real.yaml", shows="simulated", files=FILES),
)
_ORPHANS = "needs an orphan: tests/test_mci_orphans.py and tests/test_cli/test_actions.py"
UNTRIED = {
    "no worker serves the cloud …: nothing was changed": "needs a cloud without a worker: tests/test_mci_clouds.py",
    "say where it is": _ORPHANS,
    "… is …: only a record that is missing, Failed or Undefined can be given a VM": _ORPHANS,
    "… is no longer held by this action": "only if two actions race",
    "… is …: no row leads to …": _ORPHANS,
    "… is …: no VM is made in that status": _ORPHANS,
    "… is the VM of …, which is …: no orphan": _ORPHANS,
}
