"""All that a new family is checked by, in this order: python -m tests.family gadgets

Formats and sorts, records its histories and generates the docs first. What fails says what is missing, and where.
Takes about two minutes. `python3 run.py check` fetches the tools.
"""

from __future__ import annotations

import os
import subprocess
import sys

# Those that look at every family; `python3 run.py test` runs them with all others.
CHECKS = (
    "families", "layers", "tiers", "replay", "domain", "statetable", "glossary", "hints", "gateway_examples",
    "toplevel", "readme",
)  # fmt: skip
PYTEST = ("pytest", "-n", "0", "-q", "--no-header")


def steps(family: str) -> tuple[tuple[str, ...], ...]:
    """The commands of `python -m` for a family."""
    return (
        ("ruff", "format", "."),
        ("ruff", "check", "--fix", "."),  # the copied names are in another order
        ("tests.record", family),
        ("docs.generate",),
        (*PYTEST, f"tests/test_{family}.py", *(f"tests/test_{name}.py" for name in CHECKS)),
        (*PYTEST, "tests/chaos/test_kill.py", "-k", "killed_at_any_step"),
    )


def main(family: str) -> int:
    """Runs all steps, also after one has failed, and returns how many have."""
    environment = {**os.environ, "RATCHET_CHAOS_FAMILY": family}
    failed = []
    for words in steps(family):
        sys.stderr.write(f"python -m {' '.join(words)}\n")
        if subprocess.run([sys.executable, "-m", *words], env=environment).returncode != 0:
            failed.append(" ".join(words[:2]))
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "complete; types: python3 run.py check\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 2 else __doc__)
