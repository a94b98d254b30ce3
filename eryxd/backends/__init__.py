"""Backends of our own: what actually runs an agent's turn."""
