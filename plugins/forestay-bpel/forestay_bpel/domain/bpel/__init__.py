"""WS-BPEL 2.0: a process as a typed model, what of it is imported, and XPath 1.0 over its variables. Pure, so that Temporal can replay it."""
