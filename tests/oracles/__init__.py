"""Slow, plain versions of what the package does fast."""
