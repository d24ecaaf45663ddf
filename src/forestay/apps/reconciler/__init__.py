"""The reconciler process."""
