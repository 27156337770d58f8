"""What the world outside can do: one module per cloud, all under the same contract tests."""
