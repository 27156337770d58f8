"""EC2, as a moto server and our wrapper play it: what the contract of all providers does not ask, and whole lives."""
