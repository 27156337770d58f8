"""/docs: the OpenAPI document as one HTML page. It has no script, so it needs none from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1c2330 }
summary { cursor: pointer; padding: .4rem .2rem } details { border-bottom: 1px solid #d8dee8 }
code, pre { font: 14px/1.45 ui-monospace, monospace; background: #f3f5f9; border-radius: 4px; padding: .1rem .3rem }
pre { padding: .7rem; overflow-x: auto } .method { display: inline-block; width: 4.5rem; font-weight: 600 }
table { border-collapse: collapse; margin: .5rem 0 }
td, th { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top }
@media (prefers-color-scheme: dark) {
  body { background: #14181f; color: #dde3ec } a { color: #8ab4ff }
  code, pre { background: #1f2630 } details { border-color: #2c3542 }
}
"""


def render_docs_page(document: dict[str, Any]) -> str:
    """Render the page."""
    info = document["info"]
    operations = [
        _render_operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>{_format_schema(schema)}</details>"
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])} API {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
        f"<p>For programs: <a href=/openapi.json>openapi.json</a> (OpenAPI {escape(document['openapi'])}).</p>"
        f"<h2>Operations</h2>{''.join(operations)}<h2>Schemas</h2>{''.join(schemas)}</html>"
    )


def _render_operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = operation.get("parameters", [])
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code><td>{escape(each['in'])}<td>{escape(each.get('description', ''))}"
        for each in parameters
    )
    table = f"<table><tr><th>parameter<th>in<th>meaning{rows}</table>" if rows else ""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answers = "".join(
        f"<tr><td>{escape(status)}<td>{escape(each.get('description', ''))}"
        for status, each in operation.get("responses", {}).items()
    )
    return (
        f"<details><summary><span class=method>{escape(method.upper())}</span><code>{escape(path)}</code> "
        f"{escape(operation.get('summary', ''))}</summary><p>{escape(operation.get('description', ''))}</p>{table}"
        f"{'<p>Body:</p>' + _format_schema(content) if content else ''}"
        f"{_curl_example(method, path, parameters, bool(content))}"
        f"<table><tr><th>answer<th>meaning{answers}</table></details>"
    )


def _curl_example(method: str, path: str, parameters: list[dict[str, Any]], has_body: bool) -> str:
    for each in parameters:
        examples = each.get("schema", {}).get("examples") or each.get("examples") or []
        if each["in"] == "path" and isinstance(examples, list) and examples:
            path = path.replace(f"{{{each['name']}}}", str(examples[0]))
    verb = "" if method == "get" else f" -X {method.upper()}"
    body = " -H 'Content-Type: application/json' -d '{}'" if has_body else ""
    return f'<pre>curl{verb}{body} "$GATEWAY{escape(path)}"</pre>'


def _format_schema(schema: object) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"
