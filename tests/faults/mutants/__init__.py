"""Deliberate breakages of the protocol, each of which the fault programme must catch: a checker that never failed is no
evidence. They live here alone; the program has no switch for them.
"""
