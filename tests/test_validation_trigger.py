"""The triggers and constraints of the tables: what they refuse, in which words, and what they set by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgcron_runner.embedded import Server
from tests.statements.builders import (
    NOW,
    WORKER,
    add_final,
    add_job,
    add_planned_job,
    add_run,
    add_running,
    edit_job,
    minutes,
    status,
    statuses,
)
from tests.support.databases import Database, new_database


@pytest.fixture(scope="module")
def shared(server: Server, migrated_template: str) -> Iterator[Database]:
    with new_database(server, template=migrated_template) as database:
        yield database


@pytest.fixture
def database(shared: Database) -> Database:
    """One database for all tests of this module, emptied for each: they are many, and none needs its own sessions."""
    shared.execute("truncate pgcron.jobs, pgcron.runs, pgcron.workers restart identity cascade")
    return shared


# ------------------------------------------------------------------------------------------ told in words

_IANA = "An IANA name, such as Europe/Berlin or UTC."
_CRON = "Five cron fields such as 0 3 * * *, or @daily, @every 15m, @at 2027-01-31T09:00, @manual."
_FIVE = "Five: minute hour day month weekday, such as 0 3 * * *. Six: seconds first."
_KNOWN = "Known are @hourly @daily @weekly @monthly @yearly @every 15m @at 2027-01-31T09:00 @manual."
_NAME = "1 to 100 characters without blanks at the ends, such as nightly-report."
_COMMAND = "Say what to run, such as: analyze, or: /usr/local/bin/backup."
_ENV = 'A JSON object of strings, such as {"LEVEL": "info"}.'


@pytest.mark.parametrize(
    ("column", "value", "message", "hint"),
    [
        ("name", "", "name: '' is not a job name", _NAME),
        ("name", " nightly", "name: ' nightly' is not a job name", _NAME),
        ("name", "a\nb", "name: 'a\nb' is not a job name", _NAME),
        ("name", "x" * 101, f"name: '{'x' * 101}' is not a job name", _NAME),
        ("name", None, "name: null is not a job name", _NAME),
        ("kind", "bash", "kind: 'bash' is not a kind of job", "shell, sql, http or python."),
        ("command", "", "command: it is empty", _COMMAND),
        ("command", " \n\t", "command: it is empty", _COMMAND),
        ("timezone", None, "timezone: a job must say its time zone", _IANA),
        ("timezone", "", "timezone: '' is not a known time zone", _IANA),
        ("timezone", "Europe/Bonn", "timezone: 'Europe/Bonn' is not a known time zone", _IANA),
        ("timezone", "UTC+2", "timezone: 'UTC+2' is not a known time zone", _IANA),
        ("timezone", "GMT-5", "timezone: 'GMT-5' is not a known time zone", _IANA),
        ("timezone", "FOO5", "timezone: 'FOO5' is not a known time zone", _IANA),
        ("timezone", "+02:00", "timezone: '+02:00' is not a known time zone", _IANA),
        ("timezone", "posix/Europe/Berlin", "timezone: 'posix/Europe/Berlin' is not a known time zone", _IANA),
        ("timezone", "right/Europe/Berlin", "timezone: 'right/Europe/Berlin' is not a known time zone", _IANA),
        ("timezone", "localtime", "timezone: 'localtime' is not a known time zone", _IANA),
        ("timezone", "../../etc/passwd", "timezone: '../../etc/passwd' is not a known time zone", _IANA),
        ("schedule", "", "schedule: it is empty", _CRON),
        ("schedule", "\n \n", "schedule: it is empty", _CRON),
        ("schedule", "* * * *", "schedule: '* * * *' has 4 fields", _FIVE),
        ("schedule", "0 0 3 * * * 2027", "schedule: '0 0 3 * * * 2027' has 7 fields", _FIVE),
        ("schedule", "0 3 * * *\nnoon", "schedule: 'noon' has 1 fields", _FIVE),
        ("schedule", "@nightly", "schedule: '@nightly' is not a known macro", _KNOWN),
        ("schedule", "@every", "schedule: '@every' is not a known macro", _KNOWN),
        (
            "schedule",
            "@reboot",
            "schedule: '@reboot' is not a known macro",
            "A scheduler shared by several hosts has no boot. Say a time, such as @daily.",
        ),
        ("env", {"LEVEL": 3}, "env: 'LEVEL' is not a variable name with a string value", _ENV),
        ("env", {"A B": "x"}, "env: 'A B' is not a variable name with a string value", _ENV),
        ("env", {"": "x"}, "env: '' is not a variable name with a string value", _ENV),
    ],
)
@pytest.mark.parametrize("how", ["insert", "update"])
def test_a_wrong_value_is_told_with_its_field_and_a_right_example(
    how: str, column: str, value: Any, message: str, hint: str, database: Database
) -> None:
    job_id = add_job(database, "before")
    given = {"name": "job", column: value}
    write = partial(add_job, database, **given) if how == "insert" else partial(edit_job, database, job_id, **given)
    with pytest.raises((psycopg.IntegrityError, psycopg.DataError)) as caught:
        write()
    diag = caught.value.diag
    assert (diag.message_primary, diag.message_hint, diag.column_name) == (message, hint, column)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", "Übersicht täglich ✓"),
        ("name", "x" * 100),
        ("timezone", "UTC"),
        ("timezone", "Europe/Berlin"),
        ("timezone", "America/Argentina/Buenos_Aires"),
        ("timezone", "America/Port-au-Prince"),
        ("timezone", "Etc/GMT+5"),
        ("timezone", "GB-Eire"),
        ("schedule", "0 3 * * *"),
        ("schedule", "  0   3\t* * mon-fri  "),
        ("schedule", "30 0 3 * * *"),
        ("schedule", "0 3 * * *\r\n0 4 L * ?\n"),
        ("schedule", "H H(0-5) * * *"),
        ("schedule", "@Hourly"),
        ("schedule", "@every 1h30m"),
        ("schedule", "@every 10m after finish"),
        ("schedule", "@at 2027-01-31T09:00"),
        ("schedule", "@manual"),
        ("env", {"LEVEL": "info", "_x1": ""}),
        ("args", {"anything": [1, None]}),
    ],
)
def test_a_right_value_is_taken_as_it_stands(column: str, value: Any, database: Database) -> None:
    add_job(database, **{"name": "job", column: value})
    if isinstance(value, dict):
        assert database.rows("select args || env from pgcron.jobs") == [(value,)]
    else:
        assert (
            database.value("select num_nonnulls(1) from pgcron.jobs where %s in (name, timezone, schedule)", (value,))
            == 1
        )


def test_five_columns_are_enough(database: Database) -> None:
    database.execute(
        """insert into pgcron.jobs (name, schedule, timezone, kind, command)
           values ('j', '0 3 * * *', 'UTC', 'sql', 'select 1')"""
    )
    assert database.rows(
        """select enabled, queue, priority, timeout = '1 hour', overlap, catch_up, max_attempts, history, source,
                  planned, owner = current_user, problem, next_run_at = anchored_at, dst_gap, dst_repeat
             from pgcron.jobs"""
    ) == [(True, "default", 0, True, "skip", "latest", 1, "all", "sql", False, True, None, True, "run_after", "first")]


def test_a_second_job_of_the_same_name_is_refused(database: Database) -> None:
    add_job(database)
    with pytest.raises(psycopg.errors.UniqueViolation, match="jobs_name_key"):
        add_job(database)


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"args": Jsonb([1])}, "jobs_args_check"),
        ({"env": Jsonb("x")}, ""),
        ({"paused_until": "infinity"}, "jobs_paused_until_check"),
        ({"queue": "a b"}, "jobs_queue_check"),
        ({"queue": ""}, "jobs_queue_check"),
        ({"starts_at": "-infinity"}, "jobs_starts_at_check"),
        ({"ends_at": "infinity"}, "jobs_ends_at_check"),
        ({"starts_at": NOW, "ends_at": NOW}, "ends_after_start"),
        ({"jitter": "-1 s"}, "jobs_jitter_check"),
        ({"jitter": "25 hours"}, "jobs_jitter_check"),
        ({"timeout": "0"}, "jobs_timeout_check"),
        ({"timeout": "2 years"}, "jobs_timeout_check"),
        ({"kill_grace": "-1 s"}, "jobs_kill_grace_check"),
        ({"overlap": "perhaps"}, "jobs_overlap_check"),
        ({"overlap": "allow", "max_running": 0}, "jobs_max_running_check"),
        ({"overlap": "skip", "max_running": 2}, "max_running_needs_allow"),
        ({"catch_up": "some"}, "jobs_catch_up_check"),
        ({"catch_up_window": "0"}, "jobs_catch_up_window_check"),
        ({"catch_up_limit": 0}, "jobs_catch_up_limit_check"),
        ({"max_attempts": 0}, "jobs_max_attempts_check"),
        ({"retry_delay": "-1 s"}, "jobs_retry_delay_check"),
        ({"retry_backoff": 0.5}, "jobs_retry_backoff_check"),
        ({"retry_backoff": float("nan")}, "jobs_retry_backoff_check"),
        ({"retry_max_delay": "2 years"}, "jobs_retry_max_delay_check"),
        ({"memory_limit_mb": 0}, "jobs_memory_limit_mb_check"),
        ({"output_limit_kb": 10241}, "jobs_output_limit_kb_check"),
        ({"late_after": "0"}, "jobs_late_after_check"),
        ({"long_after": "0"}, "jobs_long_after_check"),
        ({"history": "none"}, "jobs_history_check"),
        ({"keep_for": "0"}, "jobs_keep_for_check"),
        ({"muted_until": "infinity"}, "jobs_muted_until_check"),
        ({"dst_gap": "run"}, "jobs_dst_gap_check"),
        ({"dst_repeat": "twice"}, "jobs_dst_repeat_check"),
    ],
)
def test_a_constraint_of_jobs_refuses_what_is_out_of_range(
    columns: dict[str, Any], constraint: str, database: Database
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        add_job(database, **columns)
    assert isinstance(caught.value, psycopg.IntegrityError | psycopg.DataError)
    if constraint:
        assert caught.value.diag.constraint_name == constraint


# ---------------------------------------------------------------------------------------- anchored anew


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("schedule", "@hourly"),
        ("timezone", "Europe/Berlin"),
        ("paused_until", NOW),
        ("starts_at", NOW),
        ("ends_at", NOW),
        ("dst_gap", "skip"),
        ("dst_repeat", "both"),
        ("name", "renamed"),  # H in a schedule is hashed from the name
    ],
)
def test_an_edit_of_when_anchors_the_schedule_anew(column: str, value: Any, database: Database) -> None:
    job_id = add_planned_job(database)
    database.execute("update pgcron.jobs set problem = 'old', anchored_at = '2020-01-01Z'")
    edit_job(database, job_id, **{column: value})
    assert database.rows(
        "select planned, problem, next_run_at = anchored_at, clock_timestamp() - anchored_at < '1 min' from pgcron.jobs"
    ) == [(False, None, True, True)]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("command", "select 2"),
        ("args", {"a": 1}),
        ("queue", "mail"),
        ("priority", 3),
        ("timeout", "2 hours"),
        ("overlap", "queue_all"),
        ("catch_up", "all"),
        ("max_attempts", 3),
        ("env", {"A": "b"}),
        ("tags", ["x"]),
        ("keep_for", "1 day"),
        ("schedule", "* * * * *"),
        ("enabled", True),
    ],
)
def test_any_other_edit_leaves_the_schedule_where_it_is(column: str, value: Any, database: Database) -> None:
    job_id = add_planned_job(database)
    database.execute("update pgcron.jobs set updated_at = '2020-01-01Z'")
    before = database.rows("select planned, problem, next_run_at, anchored_at from pgcron.jobs")
    edit_job(database, job_id, **{column: value})
    assert database.rows("select planned, problem, next_run_at, anchored_at from pgcron.jobs") == before
    assert database.value("select clock_timestamp() - updated_at < '1 min' from pgcron.jobs") is True


def test_disabling_leaves_nothing_due_and_enabling_counts_from_then(database: Database) -> None:
    job_id = add_planned_job(database)
    edit_job(database, job_id, enabled=False)
    assert database.rows("select planned, next_run_at from pgcron.jobs") == [(False, None)]
    database.execute("update pgcron.jobs set anchored_at = '2020-01-01Z'")
    edit_job(database, job_id, enabled=True)
    assert database.value(
        "select next_run_at = anchored_at and clock_timestamp() - anchored_at < '1 min' from pgcron.jobs"
    )


def test_a_job_that_is_inserted_disabled_is_not_due(database: Database) -> None:
    add_job(database, enabled=False)
    assert database.rows("select planned, next_run_at from pgcron.jobs") == [(False, None)]


def test_a_program_may_set_the_anchor_itself(database: Database) -> None:
    job_id = add_job(database, anchored_at=NOW)
    assert database.value("select next_run_at from pgcron.jobs") == NOW
    edit_job(database, job_id, schedule="@hourly", anchored_at=NOW + minutes(1))
    assert database.value("select next_run_at from pgcron.jobs") == NOW + minutes(1)


def test_what_an_insert_says_of_the_workers_own_columns_does_not_count(database: Database) -> None:
    add_job(
        database,
        planned=True,
        problem="x",
        next_run_at="2020-01-01Z",
        created_at="2020-01-01Z",
        updated_at="2020-01-01Z",
    )
    assert database.rows(
        """select planned, problem, next_run_at = anchored_at, least(created_at, updated_at) > '2021-01-01Z'
             from pgcron.jobs"""
    ) == [(False, None, True, True)]


# ------------------------------------------------------------------------------------ what is withdrawn


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ({"enabled": False}, "the job was disabled"),
        ({"paused_until": NOW + minutes(60)}, "the job was paused"),
    ],
)
def test_a_job_that_is_stopped_starts_nothing_more_and_its_running_run_goes_on(
    stop: dict[str, Any], reason: str, database: Database
) -> None:
    job_id = add_job(database)
    done, running = add_final(database, job_id, ago=minutes(9)), add_running(database, job_id, ago=minutes(8))
    waiting, retry, by_hand = (
        add_run(database, job_id, ago=minutes(ago), trigger=trigger)
        for ago, trigger in ((7, "schedule"), (6, "retry"), (5, "manual"))
    )
    other = add_run(database, add_job(database, "other"))
    edit_job(database, job_id, **stop)
    assert [status(database, run_id) for run_id in (done, running, waiting, retry, by_hand, other)] == [
        "succeeded",
        "running",
        "cancelled",
        "cancelled",
        "queued",
        "queued",
    ]
    assert database.rows(
        "select distinct reason, finished_at is not null from pgcron.runs where status = 'cancelled'"
    ) == [(reason, True)]


def test_a_pause_that_is_lengthened_withdraws_and_one_that_is_shortened_does_not(database: Database) -> None:
    job_id = add_job(database, paused_until=NOW)
    add_run(database, job_id, ago=minutes(3))
    for until in (NOW - minutes(5), None):
        edit_job(database, job_id, paused_until=until)
        assert statuses(database, job_id) == ["queued"]
    edit_job(database, job_id, paused_until=NOW)
    assert statuses(database, job_id) == ["cancelled"]


@pytest.mark.parametrize("edit", [{"command": "select 2"}, {"schedule": "@hourly"}, {"enabled": True}])
def test_other_edits_withdraw_nothing(edit: dict[str, Any], database: Database) -> None:
    job_id = add_job(database)
    add_run(database, job_id)
    edit_job(database, job_id, **edit)
    assert statuses(database, job_id) == ["queued"]


def test_a_deleted_job_leaves_its_history_and_starts_nothing_more(database: Database) -> None:
    job_id = add_job(database)
    for made in (
        add_final(database, job_id, ago=minutes(9)),
        add_running(database, job_id, ago=minutes(8)),
        add_run(database, job_id, ago=minutes(7)),
        add_run(database, job_id, ago=minutes(6), trigger="manual"),
    ):
        assert made
    database.execute("delete from pgcron.jobs where id = %s", (job_id,))
    assert database.rows("select job_id, job_name, status, reason from pgcron.runs order by scheduled_for") == [
        (None, "job", "succeeded", None),
        (None, "job", "running", None),
        (None, "job", "cancelled", "the job was removed"),
        (None, "job", "cancelled", "the job was removed"),
    ]


def test_the_id_of_a_deleted_job_is_never_used_again(database: Database) -> None:
    first = add_job(database)
    database.execute("delete from pgcron.jobs")
    assert add_job(database) > first


def test_a_change_of_the_settings_is_dated(database: Database) -> None:
    database.execute("update pgcron.settings set updated_at = '2020-01-01Z'")
    database.execute("update pgcron.settings set paused = true")
    assert database.value("select updated_at > '2021-01-01Z' from pgcron.settings") is True


def test_the_one_row_of_the_settings_stays_one(database: Database) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation):
        database.execute("insert into pgcron.settings default values")
    with pytest.raises(psycopg.errors.CheckViolation):
        database.execute("insert into pgcron.settings (only_row) values (false)")


# --------------------------------------------------------------------------------- constraints of the runs


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("trigger = 'whim'", "runs_trigger_check"),
        ("attempt = 0", "runs_attempt_check"),
        ("status = 'done', finished_at = now()", "runs_status_check"),
        ("max_running = 0", "runs_max_running_check"),
        ("args = '[]'", "runs_args_check"),
        ("status = 'succeeded'", "final_has_an_end"),
        ("finished_at = now()", "final_has_an_end"),
        ("status = 'running', started_at = now(), lane = 1", "running_has_a_worker"),
        ("status = 'running', worker_id = gen_random_uuid(), lane = 1", "running_has_a_worker"),
        ("worker_id = gen_random_uuid()", "queued_has_no_worker"),
        ("started_at = now()", "queued_has_no_worker"),
        ("status = 'running', worker_id = gen_random_uuid(), started_at = now(), lane = 2", "running_has_a_lane"),
        ("status = 'running', worker_id = gen_random_uuid(), started_at = now(), lane = 0", "running_has_a_lane"),
        ("status = 'missed', finished_at = now()", "missed_has_a_range"),
        ("missed_count = 3, missed_until = now()", "missed_has_a_range"),
        ("status = 'missed', finished_at = now(), missed_count = 3", "missed_has_a_range"),
        ("status = 'missed', finished_at = now(), missed_count = 0, missed_until = now()", "runs_missed_count_check"),
    ],
)
def test_a_run_that_the_protocol_does_not_know_is_refused(
    change: LiteralString, constraint: str, database: Database
) -> None:
    add_run(database, add_job(database))
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        database.execute("update pgcron.runs set " + change)
    assert caught.value.diag.constraint_name == constraint


def test_a_running_run_of_a_bounded_job_needs_a_lane(database: Database) -> None:
    add_run(database, add_job(database))
    with pytest.raises(psycopg.errors.CheckViolation, match="running_has_a_lane"):
        database.execute(
            "update pgcron.runs set status = 'running', worker_id = gen_random_uuid(), started_at = now(), lane = null"
        )


def test_an_exclusive_job_has_one_running_run_even_if_rows_are_edited_by_hand(database: Database) -> None:
    job_id = add_job(database)
    add_running(database, job_id, ago=minutes(2))
    with pytest.raises(psycopg.errors.UniqueViolation, match="runs_running"):
        add_running(database, job_id, ago=minutes(1))


def test_an_attempt_at_an_occurrence_is_one_row(database: Database) -> None:
    job_id = add_job(database)
    add_final(database, job_id)
    with pytest.raises(psycopg.errors.UniqueViolation, match="runs_occurrence"):
        add_run(database, job_id)
    add_run(database, job_id, attempt=2)


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("insert into pgcron.queues (name) values ('a b')", "queues_name_check"),
        ("insert into pgcron.queues (name, max_running) values ('a', 0)", "queues_max_running_check"),
        ("update pgcron.settings set keep_for = '0'", "settings_keep_for_check"),
        ("update pgcron.workers set slots = 0", "workers_slots_check"),
        ("update pgcron.workers set lease = '0'", "workers_lease_check"),
    ],
)
def test_limits_of_the_small_tables(statement: LiteralString, constraint: str, database: Database) -> None:
    database.execute(
        """insert into pgcron.workers (id, name, host, pid, version, zone_data, kinds, slots, lease)
           values (%s, 'w', 'h', 1, '1', 'x', '{sql}', 1, '30 s')""",
        (WORKER,),
    )
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        database.execute(statement)
    assert caught.value.diag.constraint_name == constraint
