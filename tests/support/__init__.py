"""Helpers for the tests: databases, waiting, worker processes and a network that can fail."""
