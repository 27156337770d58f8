"""Chooses how a host's machines run: with kvm if guests work with it, else with tcg, which emulates.

A device that can be opened does not tell: under some nested kvm, guests only spin. So a machine without disks is tried:
its firmware finds nothing to start, and halts. The answer is in the folder: all workers of a host go by the same one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

import structlog

from domain.errors import ProviderError
from providers.machines.qemu.options import KVM_DEVICE, QemuOptions
from providers.machines.qemu.process import QemuProcess

CPU_SECONDS = 0.5  # that a firmware may compute before it halts: it needs a tenth of that
WALL_SECONDS = 30.0
LOOK_SECONDS = 0.02
LOOKS_AT_REST = 5  # in a row: a thread that spins is never seen asleep so often


async def find_accelerator(options: QemuOptions, host: str) -> str:
    """Returns the accelerator for the machines of this host. With `auto`, kvm is tried once, and the answer is kept."""
    if options.accelerator != "auto":
        return options.accelerator
    file = options.folder / "accelerators" / host
    with suppress(FileNotFoundError):
        return file.read_text()
    why = await find_kvm_trouble(options)
    log = structlog.get_logger("qemu")
    log.info("machines run with tcg, which emulates" if why else "machines run with kvm", reason=why, kept_in=str(file))
    return _keep_first_answer(file, "tcg" if why else "kvm")


def _keep_first_answer(file: Path, answer: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = file.with_name(f"{secrets.token_hex(8)}.part")
    part.write_text(answer)
    with suppress(FileExistsError):  # another worker was faster
        os.link(part, file)
    part.unlink()
    return file.read_text()


async def find_kvm_trouble(options: QemuOptions) -> str:
    """Tells why machines should not run with kvm here; empty if they can."""
    if not os.access(KVM_DEVICE, os.R_OK | os.W_OK):
        return f"{KVM_DEVICE} cannot be opened"
    folder = options.folder / f"probe-{secrets.token_hex(8)}"
    process = QemuProcess(options, folder, "probe")
    try:
        await process.start("probe", 1, [], accelerator="kvm")
        async with process.open_monitor() as monitor:
            await monitor.execute("cont")
            (cpu,) = await monitor.execute("query-cpus-fast")
            return await _find_spinning(Path(f"/proc/{process.find_pid()}/task/{cpu['thread-id']}"))
    except (ProviderError, OSError) as error:
        return f"QEMU cannot use {KVM_DEVICE}: {error}"
    finally:
        await process.end()
        shutil.rmtree(folder, ignore_errors=True)


async def _find_spinning(thread: Path) -> str:
    """Watches the thread of a virtual CPU until it sleeps. Its own time decides, as a busy host gives it little."""
    until, at_rest = asyncio.get_running_loop().time() + WALL_SECONDS, 0
    while asyncio.get_running_loop().time() < until:
        asleep = (thread / "stat").read_text().rpartition(")")[2].split()[0] == "S"
        at_rest = at_rest + 1 if asleep else 0
        if at_rest == LOOKS_AT_REST:
            return ""
        if int((thread / "schedstat").read_text().split()[0]) > CPU_SECONDS * 1e9:
            break
        await asyncio.sleep(LOOK_SECONDS)
    return "a guest that has nothing to do does not halt there"
