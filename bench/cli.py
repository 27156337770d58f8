"""What the command line takes, beside the interpreter alone and Temporal's own CLI. Run: python3 run.py bench cli

CPU seconds of the process, so that a busy machine changes them little; the commands run in turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.stack import print_result_row, print_table_head
from client.homefiles import EMBEDDED_FILE
from workers.embedded import find_temporal_binary

TURNS = 15
HELP_GOAL, GATEWAY_GOAL, TEMPORAL_GOAL = "0.2 s", "0.25 s", "0.45 s"
STARTER = (sys.executable, "-m", "starter")
STATUS = (*STARTER, "mci", "status", "default/web")
DEMO_FILE = Path(__file__).resolve().parent.parent / "examples" / "mci-demo.yaml"


def cpu_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Runs a command and returns the processor time that it took."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return used.ru_utime + used.ru_stime


def measure(home: Path) -> dict[str, float]:
    """Returns the median of each command."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("RATCHET_", "TEMPORAL_"))}
    plain.pop("PYTHONDONTWRITEBYTECODE", None)  # else every start compiles every module
    plain |= {"RATCHET_HOME": str(home), "HOME": str(home)}
    address = json.loads((home / EMBEDDED_FILE).read_text())["address"]
    subprocess.run([*STARTER, "mci", "create", "default/web", "-f", str(DEMO_FILE)], env=plain, check=True)
    listing = (find_temporal_binary(), "workflow", "list", "--address", address)
    commands: dict[str, tuple[Sequence[str], Mapping[str, str]]] = {
        "interpreter": ((sys.executable, "-c", "pass"), plain),
        "temporal": (listing, plain),
        "help": ((*STARTER, "--help"), plain),
        "gateway": (STATUS, plain),
        "direct": (STATUS, plain | {"TEMPORAL_ADDRESS": address}),
    }
    turns = [{name: cpu_seconds(*command) for name, command in commands.items()} for _ in range(TURNS + 1)]
    return {name: median(turn[name] for turn in turns[1:]) for name in commands}  # the first one may have to compile


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"RATCHET_HOME": folder, "RATCHET_SIMULATED_LATENCY": "0"}
        with subprocess.Popen([*STARTER, "up"], env=environment, stdout=subprocess.PIPE, text=True) as stack:
            try:
                for line in stack.stdout or ():
                    if line.split()[:1] == ["stop"]:  # the last line of its greeting
                        break
                took = measure(Path(folder))
            finally:
                stack.terminate()
    rows = (
        ("the help page", took["help"], HELP_GOAL),
        ("a status read, by the gateway of `starter up`", took["gateway"], GATEWAY_GOAL),
        ("a status read, by Temporal and a worker", took["direct"], TEMPORAL_GOAL),
    )
    for baseline, words in (("interpreter", "python -c pass"), ("temporal", "temporal list")):
        print_table_head("Processor time of one command", "ours", words)
        for what, seconds, goal in rows:
            ratio = seconds / took[baseline]
            print_result_row(what, f"{seconds:.2f} s", f"{took[baseline]:.3f} s", ratio, f"told (goal {goal})")


if __name__ == "__main__":
    main()
