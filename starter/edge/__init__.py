"""The edge on the command line: the CRM, demand, a cloudlet as a tree, and a demo."""

from __future__ import annotations

from cyclopts import App

from starter.edge import crm, tree
from starter.edge.demand import demand
from starter.edge.demo import demo
from starter.faces import Face


def extend(app: App) -> None:
    """Commands besides the verbs that are made from the tables."""
    app.command(crm.app)
    app.command(demand)
    cloudlet = app["cloudlet"]
    del cloudlet["status"]
    cloudlet.command(tree.status)


FACE = Face(
    documents={"cloudlet": tree.cloudlet_document},
    extend=extend,
    demo=demo,
    examples={"org": "acme", "cloudlet": "berlin", "cluster": "c1", "app": "shop", "policy": "follow", "version": "v2"},
)
