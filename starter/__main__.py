"""The entry point: runs one command and exits with its code."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Runs the `starter` command and exits with its code."""
    os.umask(0o077)  # what a command writes, such as a CRM's token, is its user's only
    try:
        from starter.command import run_command  # inside `try`: Ctrl-C during the import is quiet too

        code = asyncio.run(run_command(sys.argv[1:]))
    except KeyboardInterrupt:
        code = INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)  # a normal exit may abort while the SDK's threads still run


if __name__ == "__main__":
    main()
