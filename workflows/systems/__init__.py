"""The workflows of the system family."""
