"""The language of conditions: CEL, by Google's own implementation."""
