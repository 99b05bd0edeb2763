"""Measurements: they print, and assert nothing. `python -m tests.bench` runs all of them on a server of its own."""
