"""Runs WS-BPEL 2.0 processes: no clock, no input or output of its own; whatever is outside is asked of a `Host`."""
