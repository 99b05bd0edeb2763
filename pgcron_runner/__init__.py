"""pgcron-runner: cron for a team that already has Postgres."""

__version__ = "0.1.0"
