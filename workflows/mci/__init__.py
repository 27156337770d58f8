"""The workflows of the MCI family: create, control, remove, scale and survey VMs."""
