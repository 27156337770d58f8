"""The simulated cloud: what it does beyond the providers' contract."""
