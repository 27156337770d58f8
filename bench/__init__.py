"""Benchmarks. Each prints ratios against a baseline measured in the same run, on the same server."""
