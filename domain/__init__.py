"""What is legal, and what things look like. Pure: no I/O, no clock, no Temporal."""
