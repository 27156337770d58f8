"""The inventory: objects, locks, actions and history, on SQLite or PostgreSQL."""
