"""The fault programme: real servers, hosts and jobs under a seeded storm of faults, then a calm, then the verdict.

`python -m tests.faults --help`. What it watches is what jobs write down themselves; `tests/faults/checker` judges it.
"""
