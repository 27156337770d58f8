"""All input and output, idempotent. Only activities change stored state."""
