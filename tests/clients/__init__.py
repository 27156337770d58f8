"""Programs that drive the gateway with clients of the old systems."""
