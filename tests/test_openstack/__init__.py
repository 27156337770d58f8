"""What is particular to OpenStack; its contract tests are in tests/test_clouds."""
