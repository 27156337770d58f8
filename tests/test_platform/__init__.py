"""Beyond one machine: PostgreSQL, several processes, users with rights, and operators."""
