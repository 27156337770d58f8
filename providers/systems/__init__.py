"""What only the systems family has of `providers/services`: a runner whose instances are simulated."""
