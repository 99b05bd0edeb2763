"""What people call in SQL: a job is registered by its name, held, run and removed; errors say what would be right."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest

from tests.support.databases import Database

_SCHEDULE: LiteralString = "select pgcron.schedule('clean-up', '0 3 * * *', 'Europe/Berlin', 'sql', 'select 1'{})"


def schedule(database: Database, more: LiteralString = "") -> Any:
    return database.value(_SCHEDULE.format(more))


def refusal(database: Database, statement: LiteralString, params: tuple[Any, ...] = ()) -> tuple[str, str, str]:
    """What Postgres says: message, detail, hint; all three are there."""
    with pytest.raises(psycopg.Error) as raised:
        database.execute(statement, params)
    diag = raised.value.diag
    told = diag.message_primary, diag.message_detail, diag.message_hint
    assert all(told), told
    return told  # type: ignore[return-value]


def facts(database: Database, columns: LiteralString) -> tuple[Any, ...]:
    [row] = database.rows("select " + columns + " from pgcron.jobs")
    return row


# ------------------------------------------------------------------------------------------------ schedule


def test_registering_twice_changes_and_never_doubles(database: Database) -> None:
    first = schedule(database)
    database.execute("select pgcron.schedule('clean-up', '0 4 * * *', 'UTC', 'shell', 'true')")
    assert facts(database, "id, schedule, timezone, kind, command") == (first, "0 4 * * *", "UTC", "shell", "true")


def test_registering_the_same_again_writes_nothing(database: Database) -> None:
    more: LiteralString = """, '{"a": 1}', '{"timeout": "2 hours", "tags": ["x"]}'"""
    first = schedule(database, more)
    before = facts(database, "xmin::text, anchored_at")
    assert schedule(database, more) == first
    assert facts(database, "xmin::text, anchored_at") == before


def test_what_is_not_said_stays_as_it_is(database: Database) -> None:
    schedule(database, """, '{"a": 1}', '{"timeout": "2 hours", "memory_limit_mb": 100}'""")
    schedule(database, """, options => '{"memory_limit_mb": null}'""")
    assert facts(database, "args, timeout = interval '2 hours', memory_limit_mb") == ({"a": 1}, True, None)


def test_an_edit_of_the_schedule_counts_from_now(database: Database) -> None:
    schedule(database)
    before = facts(database, "anchored_at")
    database.execute("select pgcron.schedule('clean-up', '0 4 * * *', 'Europe/Berlin', 'sql', 'select 1')")
    assert facts(database, "anchored_at") > before


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        (("x", "0 4 * *", "UTC", "sql", "select 1"), "schedule: '0 4 * *' has 4 fields", "Five: minute hour"),
        (("x", "0 4 * * *", "Berlin", "sql", "select 1"), "timezone: 'Berlin' is not a known", "'Europe/Berlin'"),
        (("x", "0 4 * * *", "CEST", "sql", "select 1"), "timezone: 'CEST' is not a known", "pg_timezone_names"),
        (("x", "0 4 * * *", None, "sql", "select 1"), "timezone: a job must say", "Europe/Berlin"),
        (("x", "0 4 * * *", "UTC", "perl", "select 1"), "kind: 'perl' is not a kind", "shell, sql, http or python"),
        (("x", "0 4 * * *", "UTC", "sql", " "), "command: it is empty", "Say what to run"),
        ((None, "0 4 * * *", "UTC", "sql", "select 1"), "name: null is not a job name", "nightly-report"),
    ],
)
def test_what_sql_can_see_is_refused_at_once(
    values: tuple[str | None, ...], message: str, hint: str, database: Database
) -> None:
    told = refusal(database, "select pgcron.schedule(%s, %s, %s, %s, %s)", values)
    assert told[0].startswith(message)
    assert hint in told[2]
    assert database.value("select count(*) from pgcron.jobs") == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('{"timeot": "1h"}', "options: 'timeot' cannot be set"),
        ('{"id": 7}', "options: 'id' cannot be set"),
        ('{"timeout": "-1h"}', 'new row for relation "jobs" violates check constraint "jobs_timeout_check"'),
        ('{"timeout": "banana"}', 'invalid input syntax for type interval: "banana"'),
        ('{"exclude": ["holidays"]}', "exclude: there is no calendar 'holidays'"),
        ("[]", "options: [] is not a JSON object"),
    ],
)
def test_options_that_are_no_columns_or_have_no_right_value_are_refused(
    options: str, message: str, database: Database
) -> None:
    call: LiteralString = "select pgcron.schedule('x', '0 4 * * *', 'UTC', 'sql', 'select 1', options => %s::jsonb)"
    assert refusal(database, call, (options,))[0] == message


def test_a_refused_row_is_not_repeated_with_its_secrets(database: Database) -> None:
    call: LiteralString = """select pgcron.schedule('x', '0 4 * * *', 'UTC', null, 'login --password hunter2')"""
    assert "hunter2" not in "".join(refusal(database, call))


# ------------------------------------------------------------------------------------ hold, go on, remove


def test_a_job_is_held_and_goes_on_from_now(database: Database) -> None:
    schedule(database)
    [before] = facts(database, "anchored_at")
    database.execute("select pgcron.pause('clean-up')")
    assert facts(database, "enabled, paused_until") == (False, None)
    database.execute("select pgcron.resume('clean-up')")
    enabled, anchored_at = facts(database, "enabled, anchored_at")
    assert enabled
    assert anchored_at > before


def test_a_pause_may_have_an_end(database: Database) -> None:
    schedule(database)
    database.execute("select pgcron.pause('clean-up', now() + interval '1 hour')")
    assert facts(database, "enabled, paused_until > now()") == (True, True)
    assert refusal(database, "select pgcron.pause('clean-up', '2000-01-01')")[0].startswith("until: ")


def test_a_job_is_muted_until_an_instant(database: Database) -> None:
    schedule(database)
    database.execute("select pgcron.mute('clean-up', now() + interval '1 hour')")
    assert facts(database, "muted_until > now()") == (True,)
    database.execute("select pgcron.mute('clean-up', null)")
    assert facts(database, "muted_until") == (None,)
    assert refusal(database, "select pgcron.mute('clean-up', 'infinity')")[0] == "until: 'infinity' is not an instant"


def test_a_job_is_removed_by_its_name(database: Database) -> None:
    schedule(database)
    assert database.value("select pgcron.unschedule('clean-up')") is True
    assert database.value("select pgcron.unschedule('clean-up', missing_ok => true)") is False
    assert refusal(database, "select pgcron.unschedule('clean-up')")[0] == "name: there is no job 'clean-up'"


_NO_JOB: tuple[LiteralString, ...] = (
    "select pgcron.pause('clean')",
    "select pgcron.resume('clean')",
    "select pgcron.mute('clean', null)",
    "select pgcron.unschedule('clean')",
    "select pgcron.run_job('clean')",
)


@pytest.mark.parametrize("call", _NO_JOB)
def test_a_job_that_is_not_there_is_told_with_the_name_that_was_meant(call: LiteralString, database: Database) -> None:
    schedule(database)
    message, _, hint = refusal(database, call)
    assert message == "name: there is no job 'clean'"
    assert "'clean-up'" in hint


# ---------------------------------------------------------------------------------------------------- runs


def test_a_job_runs_now_and_the_overlap_rule_is_told(database: Database) -> None:
    schedule(database)
    [(first, status, reason)] = database.rows("select * from pgcron.run_job('clean-up', '{\"day\": 1}')")
    assert (status, reason) == ("queued", None)
    [(_, status, reason)] = database.rows("select * from pgcron.run_job('clean-up')")
    assert (status, reason) == ("skipped", f"overlap: run {first} is still queued")
    assert database.value("select args from pgcron.runs where id = %s", (first,)) == {"day": 1}


def test_a_job_runs_after_a_while(database: Database) -> None:
    schedule(database)
    database.execute("select pgcron.run_job('clean-up', after => interval '1 hour')")
    assert database.value("select run_at > now() + interval '59 min' from pgcron.runs")
    assert refusal(database, "select pgcron.run_job('clean-up', after => '-1s')")[0].startswith("after: '-00:00:01'")
    assert refusal(database, "select pgcron.run_job('clean-up', '[]')")[0] == "args: [] is not a JSON object"


def test_a_queued_run_is_cancelled_and_one_that_has_ended_stays_as_it_is(database: Database) -> None:
    schedule(database)
    run_id = database.value("select run_id from pgcron.run_job('clean-up')")
    assert database.value("select pgcron.cancel_run(%s, 'not today')", (run_id,)) == "queued"
    assert database.value("select pgcron.cancel_run(%s)", (run_id,)) == "cancelled"
    assert database.rows("select status, reason from pgcron.runs") == [("cancelled", "not today")]
    assert refusal(database, "select pgcron.cancel_run(99)")[0] == "run_id: there is no run 99"


def test_a_running_run_is_asked_to_stop(database: Database) -> None:
    schedule(database)
    run_id = database.value("select run_id from pgcron.run_job('clean-up')")
    database.execute(
        "update pgcron.runs set status = 'running', started_at = now(), worker_id = gen_random_uuid(), lane = 1"
    )
    assert database.value("select pgcron.cancel_run(%s)", (run_id,)) == "running"
    assert database.rows("select status, cancel_requested_at is not null from pgcron.runs") == [("running", True)]


# -------------------------------------------------------------------------------------------------- rights

_GRANTS: tuple[LiteralString, ...] = (
    "grant usage on schema pgcron to worker",
    "grant execute on function pgcron.schedule, pgcron.job_id, pgcron.run_job, pgcron.enqueue_run to worker",
    "grant execute on function pgcron.pause to worker",
    "grant select, insert, update on pgcron.jobs, pgcron.runs, pgcron.incidents, pgcron.calendars to worker",
    "grant select on pgcron.job_status, pgcron.run_history to worker",
)


def test_an_ordinary_role_does_what_it_was_granted_and_no_more(database: Database) -> None:
    with psycopg.connect(database.worker_dsn, autocommit=True) as other:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute(_SCHEDULE.format(""))
        for grant in _GRANTS:
            database.execute(grant)
        other.execute(_SCHEDULE.format(""))
        other.execute("select pgcron.run_job('clean-up')")
        assert other.execute("select owner from pgcron.jobs").fetchall() == [("worker",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute("select pgcron.unschedule('clean-up')")


def test_row_security_holds_in_functions_and_views(database: Database) -> None:
    for grant in _GRANTS:
        database.execute(grant)
    schedule(database)
    database.execute("alter table pgcron.jobs enable row level security")
    database.execute("create policy own on pgcron.jobs using (owner = current_user)")
    with psycopg.connect(database.worker_dsn, autocommit=True) as other:
        other.execute("select pgcron.schedule('mine', '@daily', 'UTC', 'sql', 'select 1')")
        assert other.execute("select name from pgcron.job_status").fetchall() == [("mine",)]
        with pytest.raises(psycopg.Error, match="there is no job 'clean-up'"):
            other.execute("select pgcron.pause('clean-up')")
        with pytest.raises(psycopg.Error, match="there is no job 'clean-up'"):
            other.execute(_SCHEDULE.format(""))
