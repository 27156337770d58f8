"""The inventory's contract, on SQLite and on a real PostgreSQL."""
