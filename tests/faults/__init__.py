"""Faults with real worker processes and servers; the truth is kept outside the scheduler's own tables."""
