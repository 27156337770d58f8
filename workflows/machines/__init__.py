"""The workflows of the machine family: accounts, cloudspaces, machines, disks, images and nodes."""

from workflows.machines.bin import EmptyBin
from workflows.machines.nodes import WorkOnNode
from workflows.machines.operate import OperateObject

__all__ = ["EmptyBin", "OperateObject", "WorkOnNode"]
