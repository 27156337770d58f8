"""Runs the clients' programs, each in a process of its own that need not load it: `python forking.py FOLDER`.

A line of JSON on stdin names a program of the folder, its words, its variables, and the files for what it prints; its
exit code is the answer. A program's own file is run, as the shell would. Loading one takes more than a second of CPU,
most of what a command takes; so what a command has loaded is loaded here before the next one is forked.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any


def run(folder: Path, order: dict[str, Any]) -> None:
    """Becomes the program. Does not return."""
    for stream, file in ((1, order["out"]), (2, order["err"])):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [str(folder / order["program"]), *order["words"]]
    code: object = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        Path(order["loaded"]).write_text(json.dumps(list(sys.modules)))
    os._exit(code if isinstance(code, int) else bool(code))


def main() -> None:
    folder = Path(sys.argv[1])
    for line in sys.stdin:
        order = json.loads(line)
        if not (child := os.fork()):
            try:
                run(folder, order)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                sys.stderr.flush()
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(OSError):
            for name in json.loads(Path(order["loaded"]).read_text()):
                if not name.endswith(".shell"):  # these take the words of the command when they are loaded
                    with suppress(Exception):  # some only their own program can load
                        import_module(name)
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
