"""The edge family's commands: CRM, demand, a cloudlet's tree, and a demo."""

from __future__ import annotations

from cyclopts import App

from domain.edge import KINDS
from domain.edge.tables import POLICY
from starter import policies
from starter.edge import crm, demo, tree
from starter.edge.demand import demand
from starter.extensions import CliExtension
from starter.kinds import set_command_help, view_command
from starter.toplevel import STEERING

POLICY_HELP = {verb.action: verb.help for kind in KINDS for verb in kind.verbs if kind.table is POLICY}


def extend_app(app: App) -> None:
    """Adds commands besides those made from the state tables."""
    app.command(crm.app)
    app.command(demand, group=STEERING)
    cloudlet = app["cloudlet"]
    del cloudlet["status"]
    what = "A cloudlet with its clusters and apps, as a tree."
    cloudlet.command(view_command(crm.SCOPE, tree.print_status, what, "cloudlet status acme/berlin"), name="status")
    app["policy"].command(policies.try_cases, name="test")  # of a policy file, beside the policies that follow demand
    app["policy"].command(policies.replay_actions, name="replay")
    for verb in ("create", "update"):
        if command := app["policy"][verb].default_command:  # a policy fits into no option
            set_command_help(command, POLICY_HELP[verb], f"policy {verb} acme/follow -f examples/policy-demo.yaml")


EXTENSION = CliExtension(
    documents={"cloudlet": tree.cloudlet_document},
    remarks={"cloudlet": tree.crm_remarks},
    extend=extend_app,
    own_status=("cloudlet",),
    demo=demo.demo,
    examples={"org": "acme", "cloudlet": "berlin", "cluster": "c1", "app": "shop", "policy": "follow", "version": "v2"},
)
