"""QEMU as the hypervisor: one process per machine on this host, controlled over QMP; disks are qcow2 files."""

from providers.description import FamilyBackend
from providers.machines.qemu.hypervisor import QemuHypervisor, open_qemu_hypervisor
from providers.machines.qemu.options import QemuOptions

__all__ = ["BACKEND", "QemuHypervisor", "QemuOptions"]

BACKEND = FamilyBackend(
    role="hypervisor",
    options=QemuOptions,
    open_backend=open_qemu_hypervisor,
    check_prerequisites=QemuOptions.check_prerequisites,
    docs_page="docs/qemu.md",
    install_extra="qemu",
)
