"""Tokens by joserfc."""
