"""The orchestrator process."""
