"""Copies examples/family into this tree under other names, with the lines that it shares with other families.

Run: python -m docs.newfamily gadgets gadget (the name of the family, and of its kind)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "family"
NAME = re.compile(r"[a-z]{3,30}")
SHARED: Mapping[str, Mapping[str, str]] = {  # file -> the beginning of a line -> what follows it
    "domain/registry.py": {
        '    "systems",': '    "volumes",\n',
    },
    "workers/families.py": {
        "from workers.systems import SystemFamily": "from workers.volumes import VolumeFamily\n",
        "    SystemFamily,": "    VolumeFamily,\n",
    },
    "README.md": {
        "| [systems](docs/systems.md) |": "| [volumes](docs/volumes.md) | **volumes** | `starter demo volumes` |\n",
    },
    "docs/reliability.md": {
        "| systems | every order": "| volumes | every order | yes | yes, by the epoch of each object |\n",
        "| systems | a service": "| volumes | a volume | the provider | its path | `discard` | no: create it anew |\n",
    },
}


def copy_family(family: str, kind: str, tree: Path = ROOT) -> list[Path]:
    """Writes the files of a new family into a tree. Returns those that it wrote or changed."""
    # The longer word first: the kind is a part of the family's name.
    words = [(old, new) for pair in (("volumes", family), ("volume", kind)) for old, new in _cases(*pair)]

    def renamed(text: str) -> str:
        for old, new in words:
            text = text.replace(old, new)
        return text

    sources = [file for file in sorted(EXAMPLE.rglob("*")) if file.is_file() and file.suffix in (".py", ".md")]
    texts = {tree / renamed(str(file.relative_to(EXAMPLE))): renamed(file.read_text()) for file in sources}
    if taken := [str(file.relative_to(tree)) for file in texts if file.exists()]:
        sys.exit(f"nothing was written: the tree has {', '.join(taken)}; choose another name")
    for name, additions in SHARED.items():
        text = (tree / name).read_text()
        for line, more in additions.items():
            (whole,) = re.findall(f"(?m)^{re.escape(line)}.*\n", text)
            text = text.replace(whole, whole + renamed(more))
        texts[tree / name] = text
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return list(texts)


def _cases(old: str, new: str) -> list[tuple[str, str]]:
    return [(old, new), (old.capitalize(), new.capitalize()), (old.upper(), new.upper())]


def main(words: list[str]) -> None:
    """Copies the example, or says how this is called."""
    if len(words) != 2 or not all(map(NAME.fullmatch, words)) or words[0] == words[1]:
        sys.exit(f"{__doc__}\nBoth are 3 to 30 small letters, and differ.")
    family, kind = words
    names = [str(file.relative_to(ROOT)) for file in copy_family(family, kind)]
    sys.stdout.write("\n".join([*names, ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
