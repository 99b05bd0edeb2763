"""The six jobs of `jobs.toml`: synced twice, reviewed, and run on two workers."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartWorker
from tests.support.databases import Database
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
FILE = str(Path(__file__).with_name("jobs.toml"))
NAMES = ["check-subscriptions", "clean-up", "copy-in-steps", "health-check", "notifications", "weekday-report"]


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert self.headers["X-Service"] == "billing"
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def health_url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/health"
        server.shutdown()
        thread.join()


def test_they_are_synced_twice_reviewed_and_run_on_two_workers(
    database: Database, start_worker: StartWorker, health_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    environment = {**os.environ, "PGCRON_DSN": database.dsn, "HEALTH_URL": health_url, "CLEANUP_SCHEDULE": "15 3 * * *"}

    def pgcron(*arguments: str) -> str:
        command = [sys.executable, "-m", "pgcron_runner", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert pgcron("sync", FILE).splitlines()[-1] == "6 new."
    assert pgcron("sync", FILE) == "6 as before.\n"
    assert database.value("select schedule from pgcron.jobs where name = 'clean-up'") == "15 3 * * *"
    assert pgcron("check", FILE).splitlines()[-1] == "6 jobs: nothing found."
    for _ in range(2):
        start_worker()
    eventually(lambda: database.value("select count(*) = 6 from pgcron.jobs where planned and problem is null"), 30)
    done = "select array_agg(distinct job_name order by job_name) from pgcron.runs where status = 'succeeded'"
    # First the one that another will start too, five minutes after its own end.
    database.execute("select pgcron.run_job('weekday-report')")
    eventually(lambda: "weekday-report" in (database.value(done) or []), 60)
    for name in NAMES[:-1]:
        database.execute("select pgcron.run_job(%s)", (name,))
    eventually(lambda: database.value(done) == NAMES, 60)
    # A copy in steps has three slices, of which each goes on where the one before it was.
    slices = (
        "select array_agg(result order by id) from pgcron.runs where job_name = 'copy-in-steps' and result is not null"
    )
    eventually(lambda: database.value(slices) == [100, 200, 300], 60)
    assert database.rows("select job_name, status from pgcron.runs where status not in ('succeeded', 'queued')") == []
