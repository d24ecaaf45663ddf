"""Rate limits, storms, canaries, approvals and the audit log."""
