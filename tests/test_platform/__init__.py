"""Past one machine: PostgreSQL, several processes, other people, and whoever looks after it all."""
