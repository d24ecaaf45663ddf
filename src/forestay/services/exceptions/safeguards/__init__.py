"""Rate limits, storms, approvals and the emergency stop: act now, later, or ask a person."""
