"""The contract tests of every provider, without faults and with every fault."""
