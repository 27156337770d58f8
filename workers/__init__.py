"""Bootstrap: worker settings, the one Temporal plugin, the worker process, and the embedded server."""
