"""What a worker allows containers: which images, which network, and how many."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from domain.errors import Rejected
from providers.services.confinement import is_listed

BUNDLE_FILE = "config.json"  # of an OCI bundle; a folder without it is a root file system


@dataclass(frozen=True)
class ContainerImage:
    """An image on this machine: its files, and what it says about its program."""

    rootfs: Path
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""


@dataclass(frozen=True)
class ContainerRules:
    """What a worker allows the services of the container backend."""

    images: Sequence[str] = ()  # folders of root file systems or bundles; with a slash at the end, of such folders
    host_network: bool = False
    limit: int = 200
    runc: str = "runc"
    seconds: float = 30.0  # for one call of runc

    def find_image(self, name: str) -> ContainerImage:
        """Returns the image of this name or folder; raises Rejected if it is missing or not allowed here."""
        folder = next((found for found in map(Path, self._candidates(name)) if found.is_dir()), None)
        if folder is None:
            raise Rejected(f"there is no image {name[:200]}: RATCHET_IMAGES of the worker lists none")
        if not any(is_listed(os.path.realpath(folder), entry) for entry in self.images):
            raise Rejected(f"the image {name[:200]} may not run here: RATCHET_IMAGES of the worker does not list it")
        return _read_bundle(folder) if (folder / BUNDLE_FILE).exists() else ContainerImage(folder.resolve())

    def _candidates(self, name: str) -> list[str]:
        """Returns the folders that the name may mean: itself, or below a listed folder of images."""
        if name.startswith("/"):
            return [name]
        below = [entry + name for entry in self.images if entry.endswith("/")]
        return below + [entry for entry in self.images if Path(entry).name == name and not entry.endswith("/")]


def _read_bundle(folder: Path) -> ContainerImage:
    """Returns what an OCI bundle says about its program. It cannot give itself rights: everything else is ignored."""
    try:
        config = json.loads((folder / BUNDLE_FILE).read_text())
        process = config.get("process") or {}
        rootfs = (folder / str(config["root"]["path"])).resolve()
        words = dict(str(word).partition("=")[::2] for word in process.get("env") or ())
        command = [str(word) for word in process.get("args") or ()]
        directory = str(process.get("cwd") or "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Rejected(f"{folder / BUNDLE_FILE} is no OCI bundle's: {error}") from error
    if not rootfs.is_dir() or not rootfs.is_relative_to(folder.resolve()):
        raise Rejected(f"the root file system of {folder} is not a folder inside it")
    return ContainerImage(rootfs, command, words, directory)
