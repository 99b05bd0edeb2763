"""An http job from `job add` over a real worker to `runs show`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
from tests.conftest import StartWorker
from tests.support.databases import Database
from tests.support.http_server import Connection, reply, serving_in_thread
from tests.support.waiting import eventually

TOKEN = "s3cr3t-1"
MANUAL = ("--schedule", "@manual", "--timezone", "UTC")


async def answer(connection: Connection) -> None:
    body = f'{{"job": 7, "you": "{connection.request.headers.get("authorization")}"}}'.encode()
    failing = connection.request.target == "/down"
    await connection.send(reply("503 Oh" if failing else "200 OK", body, Content_Type="application/json"))


def test_an_http_job_runs_on_a_worker_and_shows_how_it_went(
    cli: Cli, database: Database, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", TOKEN)
    worker = start_worker("--log-json", "--log-level", "debug")
    with serving_in_thread(answer) as server:
        cli("job", "add", "hook", *MANUAL, "--http", server.url("/ok"), "--args",
            '{"headers": {"Authorization": "Bearer env:API_TOKEN"}, "json": {"a": 1}}')  # fmt: skip
        cli("job", "add", "down", *MANUAL, "--http", server.url("/down"), "--attempts", "2", "--retry-delay", "0s")
        run_id = cli("job", "run", "hook", "--json").json["run_id"]
        failing_id = cli("job", "run", "down", "--json").json["run_id"]
        eventually(lambda: not database.value("select count(*) from pgcron.runs where finished_at is null"), 30)
    shown = cli("runs", "show", str(run_id), "--json").json
    assert (shown["status"], shown["exit_code"]) == ("succeeded", None)
    assert shown["result"]["json"] == {"job": 7, "you": "***"}
    assert cli("runs", "logs", str(run_id)).out == '{"job": 7, "you": "***"}\n'
    assert "status 503 where 2xx was expected" in cli("runs", "show", str(failing_id)).out
    (sent,) = [request.headers for request in server.requests if request.target == "/ok"]
    assert (sent["authorization"], sent["x-pgcron-run-id"]) == (f"Bearer {TOKEN}", str(run_id))
    first, second = [request.headers for request in server.requests if request.target == "/down"]
    assert first["idempotency-key"] == second["idempotency-key"]
    assert (first["x-pgcron-attempt"], second["x-pgcron-attempt"]) == ("1", "2")
    history = database.rows("select to_jsonb(r)::text from pgcron.runs r")
    assert TOKEN not in str(history) + worker.log()
    worker.terminate()
    assert worker.wait() == 0
