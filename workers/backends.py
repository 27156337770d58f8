"""Opens the real backends of families, and calls the nodes of one that other workers serve."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateSchema
from temporalio.client import ActivityFailureError, Client
from temporalio.exceptions import TimeoutError, TimeoutType
from temporalio.service import RPCError

from activities.retry import ONCE
from domain.connections import Connections
from domain.errors import Unavailable, UnknownOutcome, format_one_line
from domain.nodecalls import SERVE_NODE_ORDER, NodeAnswer, NodeTask, node_queue
from providers.description import BackendHost
from store.engine import Database
from workers.connections import BACKEND_BY_OPTIONS
from workers.context import WorkerContext

START_TIMEOUT = timedelta(seconds=5)  # until a worker of the node takes an order; it is given again after that
ORDER_TIMEOUT = timedelta(seconds=180)  # a migration takes two minutes at most
HEARTBEAT_TIMEOUT = timedelta(seconds=5)  # after which a worker counts as dead


def open_backend(connections: Connections, role: str, host: BackendHost) -> Any:
    """Opens the real backend of a role, such as the hypervisor; None if the file names none. Makes no call yet."""
    options = connections.backends.get(role)
    return options and BACKEND_BY_OPTIONS[type(options)].open_backend(options, host)


def open_backend_database(shared_url: str, role: str, file: Path, tables: Sequence[sa.Table]) -> Database:
    """Opens the database of a backend: a file; on PostgreSQL a schema of its own, which workers of all hosts share."""
    shared = shared_url.startswith("postgresql")
    database = Database(shared_url if shared else f"sqlite:///{file}")
    if shared:
        schema = f"ratchet_{role}"
        make = CreateSchema(schema, if_not_exists=True)
        database.run_transaction_blocking(lambda connection: connection.execute(make))
        database.engine = database.engine.execution_options(schema_translate_map={None: schema})
    database.run_transaction_blocking(lambda connection: tables[0].metadata.create_all(connection, tables))
    return database


def make_backend_host(context: WorkerContext, role: str) -> BackendHost:
    """Returns what this worker lends to the backend of a role."""
    return BackendHost(
        open_database=partial(open_backend_database, context.settings.cloud_url, role),
        serves_node=lambda node: node_queue(node) in context.serving,
        call_node=partial(call_node, context.client),
    )


async def call_node(client: Client, task: NodeTask) -> NodeAnswer:
    """Has a worker of the node carry out an order. Raises Unavailable if none took it, UnknownOutcome if one died."""
    queue = node_queue(task.node)
    try:
        answer: NodeAnswer = await client.execute_activity(
            SERVE_NODE_ORDER,
            task,
            id=f"{queue}-{uuid.uuid4().hex[:12]}",
            task_queue=queue,
            result_type=NodeAnswer,
            schedule_to_start_timeout=START_TIMEOUT,
            start_to_close_timeout=ORDER_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=ONCE,
        )
        return answer
    except ActivityFailureError as failure:
        why = failure.cause
        if isinstance(why, TimeoutError) and why.type is TimeoutType.SCHEDULE_TO_START:
            hint = f"on its host: starter worker --node {task.node}"
            raise Unavailable(f"no worker serves the node {task.node}; {hint}") from failure
        raise UnknownOutcome(f"the worker of the node {task.node} did not answer: {why}") from failure
    except RPCError as error:
        raise UnknownOutcome(f"the node {task.node} cannot be asked: {format_one_line(error)}") from error
