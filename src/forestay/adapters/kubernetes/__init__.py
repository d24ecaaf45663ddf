"""Kubernetes by its HTTP interface: a pilot is a Job with one pod."""
