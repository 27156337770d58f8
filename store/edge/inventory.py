"""The edge family's transactions, as its activities call them."""

from __future__ import annotations

from store.edge import links, queries
from store.transaction import SqlStore, transaction


class SqlEdgeStore(SqlStore):
    """The edge family's store: `domain.edge.ports.EdgeStore` on SQLite or PostgreSQL."""

    accept_connection = transaction(links.accept_connection)
    record_answer = transaction(links.record_answer)
    record_disconnect = transaction(links.record_disconnect)
    find_connection = transaction(links.find_connection)
    record_ignored_messages = transaction(links.record_ignored_messages)
    list_expected_instances = transaction(queries.list_expected_instances)
    plan_failover = transaction(queries.plan_failover)
    read_policy = transaction(queries.read_policy)
    read_policy_facts = transaction(queries.read_policy_facts)
