"""Dialects: the HTTP APIs of the old systems, so that their own clients work unmodified.

A dialect is one module with a FastAPI router, its translations in both directions, and a `DialectErrorFormat`. It is
mounted as an application of its own (`mounts.py`, one line per dialect), so its errors and unknown routes look as its
clients expect. How a dialect uses the shared parts:

- `apps.build_dialect_app(router, style)` makes the application. Raise `Refused`, `Unauthorized` or
  `HTTPException` anywhere: the style renders them, with a status for each category of refusal.
- `calls.Call` is a parameter of a route: `call.caller` is who asks, by the gateway's own tokens, whether they came as
  `Authorization: Bearer`, as the password of HTTP Basic, or as `X-Auth-Token`. `call.check_tenant("project:p1")`
  refuses what the token may not use.
- `call.perform_action(path, action, spec)` requests an action and waits for its outcome, up to a limit; None: it goes
  on. The same call again, within a minute, joins the action of the first; if that is done already, it gets the first's
  answer.
- `call.create_object_once(build)` is `perform_action` for creations of clients that send no key of their own: the same
  token, route and body within a minute is the same request, also after the gateway or a worker died. If the object is
  gone since, it is a new request. `build(key)` returns the request for a key; use the key in the path if the client
  gives no name.
- `call.ratchet` is the caller's client: `read_object(path)`, `iterate_objects(kind, prefix)` and `run_query(...)` read.
- Ids: list the dialect in `domain.aliases.Dialect`, give its kinds `alias_forms`, and use
  `call.find_path_by_alias(dialect, id)` and `call.aliases_of_paths(dialect, paths)`. An id belongs to one object for
  ever, UUID or number.
"""
