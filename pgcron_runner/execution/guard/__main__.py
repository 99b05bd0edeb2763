"""`python -I -S FOLDER SOCKET MARK_BASE SCRATCH`: the guard of the worker at the other end of this inherited socket."""

import os
import sys
from importlib import import_module

# Run by its path, this folder is no package yet, which its modules need to name one another. Its neighbours come last
# on the path: some are named like modules of the standard library.
parent, package = os.path.split(os.path.dirname(os.path.abspath(__file__)))
sys.path[:] = [*sys.path[1:], parent]

import_module(f"{package}.serve").main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
