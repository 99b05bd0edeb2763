"""`python -m pgcron_runner` is the console script."""

from pgcron_runner.cli import main

if __name__ == "__main__":
    main()
