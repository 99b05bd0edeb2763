"""Copies a table from one database into another, in slices of a minute, and goes on where it was whatever happens.

    pgcron-runner job add copy-orders --schedule '0 2 * * *' --timezone Europe/Berlin --attempts 5 --timeout 5m \
        --python tests.examples.copy_in_slices:copy_orders --env-from COPY_FROM --env-from COPY_TO

Between two slices others get the slot, a deploy waits a minute at most, and a slice that is lost (kill -9, a dead host)
is tried again from the last batch that was saved.
"""

from __future__ import annotations

import os
import time
from typing import Any

import psycopg

from pgcron_runner import run


def copy_orders(seconds: float = 60.0, batch: int = 1000) -> dict[str, Any]:
    """One slice: batch after batch in the order of the key, until its time is over or nothing is left."""
    until = time.monotonic() + seconds
    began_after = last_id = run.state.get("last_id", 0)
    with psycopg.connect(os.environ["COPY_FROM"]) as source, psycopg.connect(os.environ["COPY_TO"]) as target:
        (total,) = source.execute("select coalesce(max(id), 0) from orders").fetchone() or (0,)
        while rows := _next_rows(source, last_id, batch):
            with target.transaction(), target.cursor() as cursor:
                # A batch that was copied, but not saved, comes again.
                cursor.executemany("insert into orders (id, item) values (%s, %s) on conflict do nothing", rows)
            last_id = rows[-1][0]
            run.save(last_id=last_id)
            run.progress(100 * last_id / total, f"{last_id} of {total}")
            if time.monotonic() > until or run.cancelled:
                run.run_after("0s")
                break
    return {"after": began_after, "up_to": last_id}


def _next_rows(source: psycopg.Connection[Any], last_id: int, batch: int) -> list[tuple[int, str]]:
    return source.execute("select id, item from orders where id > %s order by id limit %s", [last_id, batch]).fetchall()
