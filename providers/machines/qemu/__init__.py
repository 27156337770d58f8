"""QEMU as the hypervisor: one process per machine on this host, controlled over QMP; disks are qcow2 files."""

from providers.machines.qemu.hypervisor import QemuHypervisor, open_hypervisor
from providers.machines.qemu.options import QemuOptions
from providers.provider import Backend

__all__ = ["BACKEND", "QemuHypervisor", "QemuOptions"]

BACKEND = Backend(
    role="hypervisor",
    options=QemuOptions,
    open_backend=open_hypervisor,
    check_offline=QemuOptions.check_host,
    docs_page="docs/qemu.md",
    install_extra="qemu",
)
