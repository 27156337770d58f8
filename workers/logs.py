"""Log configuration: each line names its action; replayed workflow code logs nothing."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger
from temporalio import activity, workflow
from temporalio.common import SearchAttributeKey
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from domain.errors import format_one_line
from providers.registry import PROVIDERS

_ACTION = SearchAttributeKey.for_keyword("Action")


def configure_logging(level: str = "info", style: str = "json", traces: bool = True) -> None:
    """Logs everything, including Temporal's lines, to stderr: as JSON lines, or in a form for people."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        add_action_fields,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if traces else shorten_error,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderer = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    handler.addFilter(lambda _record: not _is_replaying())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    logging.getLogger("alembic").setLevel("WARNING")
    for name in (name for provider in PROVIDERS for name in provider.logger_names):
        logging.getLogger(name).setLevel("WARNING")


def shorten_error(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replaces a traceback by one line, for people; the action's outcome has the details."""
    if isinstance(raised := event.pop("exc_info", None), tuple) and raised[1] is not None:
        event["error"] = format_one_line(f"{type(raised[1]).__name__}: {raised[1]}", 200)
    event["event"] = str(event.get("event", "")).partition(" ({")[0]
    for repeated in ("temporal_activity", "temporal_workflow"):  # repeats other fields
        event.pop(repeated, None)
    return event


def add_action_fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Adds path, run and attempt of the workflow or activity to a log line."""
    if _is_replaying():
        raise structlog.DropEvent
    event.pop("temporal_log", None)  # the SDK's own record of a forwarded line
    if workflow.in_workflow():
        info = workflow.info()
        event.update(path=info.workflow_id, run=info.run_id, workflow=info.workflow_type)
        if "action" not in event and (action := info.typed_search_attributes.get(_ACTION)):
            event["action"] = action
    elif activity.in_activity():
        task = activity.info()
        event.update(path=task.workflow_id, run=task.workflow_run_id, activity=task.activity_type, attempt=task.attempt)
    return event


def _is_replaying() -> bool:
    """Tells whether workflow code is replayed. The handler filters by this too, as no formatter can drop a record."""
    return workflow.in_workflow() and workflow.unsafe.is_replaying_history_events()


class ActionLogInterceptor(Interceptor):
    """Adds the action to the log lines of activities."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _LoggedActivity(next)


class _LoggedActivity(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        about = input.args[0] if input.args else None
        action = getattr(getattr(about, "request", about), "action", None)
        if not isinstance(action, str):
            return await super().execute_activity(input)
        with structlog.contextvars.bound_contextvars(action=action):
            return await super().execute_activity(input)
