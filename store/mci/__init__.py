"""The MCI family's hooks, tables and queries: connections, VMs added to a running action, surveys."""
