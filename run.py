"""Everything from a fresh clone, with nothing installed but Python 3.11 or newer.

python3 run.py                the demo: an MCI across three simulated clouds, live
python3 run.py test [ARGS]    the fast tests; with --all, or the name of a file, every test; ARGS are pytest's
python3 run.py check          linter, formatter, types
python3 run.py bench [NAME]   a benchmark: ratios against bare Temporal; NAME is kernel or a family
python3 run.py WORDS          any command of the CLI: python3 run.py --help
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = HERE / ".venv" / "bin"
# Tests wait more than they reckon: four processes for two cores. tests/shares.py says who runs what.
AT_ONCE = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
PROGRAM = ("embedded", "postgres", "clouds", "tui", "encryption", "tracing", "gateway")  # for those who use it
TOOLS = ("dev",)  # for those who change it: the same, and a hundred megabytes more
CHECKS = ("ruff check .", "ruff format --check .", "mypy")


def main(words: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036  the very thing to find out
        sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    # Many short processes are started from here; each would compile everything anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    install(TOOLS if words[:1] in (["test"], ["bench"], ["check"]) else PROGRAM)
    match words:
        case ["test", *rest]:
            return run(BIN / "python", "-m", "pytest", *(() if "--chaos" in rest else AT_ONCE), *rest)
        case ["bench", *rest]:
            name, *arguments = rest or ["kernel"]
            return run(BIN / "python", "-m", f"bench.{name}", *arguments)
        case ["check"]:
            return max(run(BIN / command, *rest) for command, *rest in map(str.split, CHECKS))
    os.environ.setdefault("RATCHET_COMMAND", "python3 run.py")
    os.execv(BIN / "starter", ["starter", *(words or ["demo"])])


def install(extras: tuple[str, ...]) -> None:
    """Installs the dependencies into .venv, exactly as locked; ends the program if a hash is not the locked one."""
    if not BIN.exists():
        print("first run: fetching the dependencies into .venv/, which takes a while", file=sys.stderr)
    environ = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(HERE / ".venv")}
    environ.pop("VIRTUAL_ENV", None)
    chosen = [word for extra in extras for word in ("--extra", extra)]
    sync = [find_uv(), "sync", "--frozen", "--inexact", "--no-dev", *chosen, "--python", sys.executable]
    how = [] if BIN.exists() else ["--compile-bytecode"]
    if subprocess.run([*sync, "--quiet", *how], cwd=HERE, env=environ).returncode != 0:
        sys.exit("the dependencies could not be installed as uv.lock has them; nothing else was tried: see above")


def find_uv() -> str:
    """Returns the `uv` on the PATH, or one of our own in .uv, fetched with the hashes of deploy/uv.txt."""
    own = HERE / ".uv" / "bin" / "uv"
    if found := shutil.which("uv"):
        return found
    if not own.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--root-user-action", "ignore"]  # it goes into a folder of its own
        pip += ["--require-hashes", "--only-binary", ":all:", "--requirement", str(HERE / "deploy" / "uv.txt")]
        if subprocess.run([*pip, "--target", own.parents[1]]).returncode != 0 or not own.exists():
            sys.exit("uv is needed and could not be fetched: install it (https://docs.astral.sh/uv), then try again")
    return str(own)


def run(*command: str | Path) -> int:
    return subprocess.run(command, cwd=HERE).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
