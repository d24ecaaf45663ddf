"""Carries decisions out through ports."""
