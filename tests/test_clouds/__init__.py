"""The contract that every provider keeps, on every provider: in good times and with every fault."""
