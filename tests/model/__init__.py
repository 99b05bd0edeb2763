"""The whole worker on simulated machines: clock, network, server, guard and commands are models.

One seed is one story: workers, jobs, faults, a calm, and a verdict by the same checker as that of the fault programme.
Read `scenario` first.
"""
