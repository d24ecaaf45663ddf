"""Forestay keeps job flows going when jobs, nodes, data, networks and schedulers fail."""
