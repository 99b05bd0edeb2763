"""Jobs as people write them; each is tried on a real worker by the test beside it."""
