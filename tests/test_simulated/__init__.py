"""The simulated cloud: the contract that every provider keeps, and what only this one can do."""
