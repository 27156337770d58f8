"""Which accelerator machines get: kvm only where QEMU can use it and idle guests halt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from providers.machines.qemu import QemuOptions, accelerator
from providers.machines.qemu.accelerator import find_accelerator, find_kvm_trouble
from providers.machines.qemu.process import QemuProcess
from tests.test_machines.qemu import end_qemu_processes, needs_qemu
from tests.test_machines.test_qemu_chaos import living, wrapped

# It never rests: a jump to itself at the reset vector.
SPINNING = b"\xeb\xfe".rjust(0xFFF2, b"\x90").ljust(0x10000, b"\x90")


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QemuOptions:
    """A host with a device that can be opened. Guests are emulated, as that can be done everywhere."""
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr(accelerator, "KVM_DEVICE", device)
    start = QemuProcess.start

    async def start_emulated(process: QemuProcess, *words: Any, **more: Any) -> None:
        await start(process, *words, **more | {"accelerator": "tcg"})

    monkeypatch.setattr(QemuProcess, "start", start_emulated)
    return QemuOptions(provider="qemu", folder=tmp_path / "qemu", nodes=("n1",))


@needs_qemu
async def test_kvm_is_taken_where_an_idle_guest_halts(options: QemuOptions) -> None:
    assert await find_kvm_trouble(options) == ""
    assert await find_accelerator(options, "host") == "kvm"


@needs_qemu
async def test_kvm_is_not_taken_where_guests_only_spin(options: QemuOptions, tmp_path: Path) -> None:
    rom = tmp_path / "spinning.rom"
    rom.write_bytes(SPINNING)
    spinning = options.model_copy(
        update={"program": wrapped(tmp_path, "qemu-system-x86_64", f'set -- -bios {rom} "$@"')}
    )
    try:
        assert "does not halt" in await find_kvm_trouble(spinning)
        assert await find_accelerator(spinning, "host") == "tcg"
        assert living(tmp_path) == {}
        assert not list(options.folder.glob("probe-*"))
    finally:
        end_qemu_processes(tmp_path)


@needs_qemu
async def test_kvm_is_not_taken_where_qemu_cannot_use_it(options: QemuOptions, tmp_path: Path) -> None:
    broken = options.model_copy(
        update={"program": wrapped(tmp_path, "qemu-system-x86_64", "echo no KVM here >&2; exit 1")}
    )
    assert "no KVM here" in await find_kvm_trouble(broken)


async def test_without_the_device_nothing_is_tried(options: QemuOptions, tmp_path: Path) -> None:
    (tmp_path / "kvm").unlink()
    nothing = options.model_copy(update={"program": "no-such-program"})
    assert await find_accelerator(nothing, "host") == "tcg"


async def test_the_first_answer_holds_for_all_workers_of_a_host_and_for_no_other(options: QemuOptions) -> None:
    answers = options.folder / "accelerators"
    answers.mkdir(parents=True)
    (answers / "one").write_text("kvm")
    nothing = options.model_copy(update={"program": "false"})
    assert await find_accelerator(nothing, "one") == "kvm"
    assert await find_accelerator(nothing.model_copy(update={"accelerator": "tcg"}), "one") == "tcg"
    assert [file.name for file in answers.iterdir()] == ["one"]
