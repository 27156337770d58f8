"""State tables as Markdown and as mermaid diagrams, derived from the rows."""

from __future__ import annotations

from domain.statetable import NONE, SAME, Actor, Row, StateTable

HEADINGS = ("action", "from", "while", "then", "else", "actor")


def row_cells(row: Row) -> tuple[str, ...]:
    """Returns a row as the cells of a table."""
    action = f"{row.action} (force)" if row.force else f"{row.action} (hidden)" if row.hidden else row.action
    otherwise = _mermaid_label(row.otherwise) if row.otherwise else "-"
    return (action, _mermaid_label(row.source), row.during or "-", _mermaid_label(row.then), otherwise, row.actor)


def merged_rows(table: StateTable) -> list[tuple[str, ...]]:
    """Returns the rows for a reader: rows that differ only in their source status become one."""
    sources_by_row: dict[tuple[str, ...], list[str]] = {}
    for action, source, *rest in map(row_cells, table.rows):
        sources_by_row.setdefault((action, *rest), []).append(source)
    return [(action, ", ".join(sources), *rest) for (action, *rest), sources in sources_by_row.items()]


def markdown_table(table: StateTable) -> str:
    """Returns the state table as a Markdown table."""
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *(row_cells(row) for row in table.rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def mermaid_diagram(table: StateTable) -> str:
    """Returns the user's actions as a mermaid state diagram, without the steps of providers and controllers."""
    edges: dict[str, None] = {}
    for row in table.rows:
        if row.during is None or row.actor not in (Actor.USER, Actor.GROUP):
            continue
        label = f"{row.action} (force)" if row.force else row.action
        edges[f"{_mermaid_node(row.source)} --> {row.during}: {label}"] = None
        edges[f"{row.during} --> {_mermaid_node(row.success_status(row.source))}: done"] = None
        if row.otherwise not in (None, SAME):
            edges[f"{row.during} --> {row.otherwise}: failed"] = None
    ends = (f"{status} --> [*]" for status in table.final_statuses)
    return "\n".join(["stateDiagram-v2", *(f"    {edge}" for edge in [*edges, *ends])]) + "\n"


def _mermaid_node(status: str) -> str:
    return "[*]" if status == NONE else status


def _mermaid_label(status: str) -> str:
    return {NONE: "(none)", SAME: "(same)"}.get(status, status)
