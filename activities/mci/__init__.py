"""The MCI family's activities: VMs and shared resources in clouds, and bulk reads and writes of records."""
