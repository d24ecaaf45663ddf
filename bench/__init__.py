"""Benchmarks: ratios measured in one run, arms interleaved, with what limits them."""
