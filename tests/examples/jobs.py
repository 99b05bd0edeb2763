"""The functions of `jobs.toml`, and the same kind of job declared beside its function."""

from __future__ import annotations

from pgcron_runner import job, run

_ROWS, _SLICE = 300, 100


def check_subscriptions() -> int:
    """How many have run out."""
    return 0


def report(audience: str) -> str:
    """What is sent to whom."""
    return f"report for {audience}"


def copy_a_slice() -> int:
    """One slice of a long copy, and the next one after it."""
    cursor = int(run.state.get("cursor", 0)) + _SLICE
    run.progress(100 * cursor / _ROWS, f"copied {cursor} rows")
    if cursor < _ROWS:
        run.save(cursor=cursor)
        run.run_after()
    else:
        run.save({})
    return cursor


@job(schedule="0 4 * * sun", timezone="Europe/Berlin", timeout="30m", args={"keep": 4})
def rotate_archives(keep: int) -> int:
    """How many are kept."""
    return keep
