"""The simulated site that hands hosts over to tenants."""
