"""Runs WS-BPEL 2.0 processes: no clock, no input or output of its own; everything external goes through a `Host`."""
