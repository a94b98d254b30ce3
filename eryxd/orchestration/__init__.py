"""Patterns into turns: one module per mode."""
