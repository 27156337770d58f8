"""The systems family's hooks and transactions."""
