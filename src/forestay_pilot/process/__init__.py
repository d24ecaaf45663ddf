"""Payloads as processes: guarded, limited, ended."""
