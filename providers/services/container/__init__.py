"""Runs instances as containers on this machine, by runc. Needs root, and Linux with overlayfs.

A container's id is its instance's token. A small process of ours, the shim, makes it and stays as its parent, so that
both outlive the worker. runc's answers are never trusted: what runs is asked for afterwards.
"""

from providers.services.container.rules import ContainerRules
from providers.services.container.runner import ContainerRunner

__all__ = ["ContainerRules", "ContainerRunner"]
