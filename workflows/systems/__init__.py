"""The workflows of systems."""
