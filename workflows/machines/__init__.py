"""The workflows of the machine family: accounts, cloudspaces, machines, disks, images and nodes."""

from workflows.machines.nodes import WorkOnNode
from workflows.machines.operate import OperateObject
from workflows.machines.recyclebin import EmptyBin

__all__ = ["EmptyBin", "OperateObject", "WorkOnNode"]
