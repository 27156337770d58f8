"""EC2 on moto and our wrapper: what the providers' contract tests do not cover."""
