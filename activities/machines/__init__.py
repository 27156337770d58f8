"""What is done to machines, cloudspaces, accounts, disks, images and nodes outside."""

from activities.machines.orders import MachineActivities, Patience

__all__ = ["MachineActivities", "Patience"]
