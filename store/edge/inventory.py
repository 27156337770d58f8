"""The edge family's transactions, as its activities call them."""

from __future__ import annotations

from store.edge import links, queries
from store.transaction import Store, transaction


class SqlEdge(Store):
    """The edge family's store: `domain.edge.ports.EdgeInventory` on SQLite or PostgreSQL."""

    accept_connection = transaction(links.connected)
    record_answer = transaction(links.answered)
    record_loss = transaction(links.lost)
    find_connection = transaction(links.rejoined)
    record_ignored = transaction(links.ignore)
    expected_instances = transaction(queries.everything)
    find_refuges = transaction(queries.refuges)
    stored_policy = transaction(queries.policy)
    policy_facts = transaction(queries.facts)
