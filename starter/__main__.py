"""The entry point: runs one command and exits with its code."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Runs the `starter` command and exits with its code."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")  # it would look for some in every installed package
    os.umask(0o077)  # what a command writes, such as a CRM's token, is its user's only
    try:
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)  # a normal exit may abort while the SDK's threads still run


def _run(words: list[str]) -> int:
    # Imported here: Ctrl-C during an import is quiet too, and help needs neither the models nor an event loop.
    if len(words) < 2:  # as for help, and for the version
        from starter.helppage import print_top_level

        if print_top_level(words):
            return 0
    from starter.shortcut import print_gateway_status

    if print_gateway_status(words):
        return 0
    import asyncio

    from starter.command import run_command

    return asyncio.run(run_command(words))


if __name__ == "__main__":
    main()
