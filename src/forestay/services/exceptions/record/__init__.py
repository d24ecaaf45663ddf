"""The decision log, the step log, the audit log, and the settling of incidents."""
