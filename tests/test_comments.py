"""The schema explains itself, keeps the names that people write by hand, and follows the house rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgcron_runner.embedded import Server
from tests.support.databases import Database, new_database


@pytest.fixture(scope="module")
def database(server: Server, migrated_template: str) -> Iterator[Database]:
    """One for all tests of this module: they only look."""
    with new_database(server, template=migrated_template) as database:
        yield database


# The names are the API, since people write them by hand. A later migration may add, never rename.
_COLUMNS = {
    "jobs": """id name kind command args schedule timezone enabled paused_until queue priority starts_at ends_at
        jitter timeout kill_grace overlap max_running catch_up catch_up_window max_attempts retry_delay retry_backoff
        retry_max_delay memory_limit_mb output_limit_kb env env_from working_dir late_after long_after history keep_for
        tags owner source dst_gap dst_repeat next_run_at problem created_at updated_at""",
    "runs": """id job_id job_name kind trigger scheduled_for run_at attempt status reason worker_id started_at
        finished_at exit_code error progress state result output missed_count missed_until parent_run_id args
        cancel_requested_at""",
    "workers": "id name host pid version queues kinds slots lease beat started_at heartbeat_at stopping",
    "queues": "name max_running paused",
    "settings": "paused keep_for",
    "schema_migrations": "version name breaking applied_at",
    "chains": "upstream_id downstream_id on_status delay",
    "channels": "id name target",
    "routes": "channel_id job_pattern tags queue events min_failures repeat_every",
    "incidents": "id job_id job_name event opened_at closed_at failures",
    "alerts": "id channel_id incident_id run_id event dedup_key created_at sent_at",
}


@pytest.mark.parametrize("table", _COLUMNS)
def test_the_names_that_people_write_are_there(table: str, database: Database) -> None:
    columns = database.rows(
        "select column_name from information_schema.columns where table_schema = 'pgcron' and table_name = %s", (table,)
    )
    assert set(_COLUMNS[table].split()) <= {row[0] for row in columns}


def test_the_time_zone_of_a_job_must_be_said(database: Database) -> None:
    assert database.rows(
        """select is_nullable, column_default from information_schema.columns
            where table_schema = 'pgcron' and table_name = 'jobs' and column_name = 'timezone'"""
    ) == [("NO", None)]


def test_every_object_carries_a_comment(database: Database) -> None:
    assert (
        database.rows(
            """select 'schema' where obj_description('pgcron'::regnamespace) is null
               union all
               select c.relname from pg_class c
                where c.relnamespace = 'pgcron'::regnamespace and c.relkind in ('r', 'v', 'm', 'p')
                  and obj_description(c.oid) is null
               union all
               select c.relname || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
                where c.relnamespace = 'pgcron'::regnamespace and c.relkind in ('r', 'v', 'm', 'p') and a.attnum > 0
                  and not a.attisdropped and col_description(c.oid, a.attnum) is null
               union all
               select p.oid::regprocedure::text from pg_proc p
                where p.pronamespace = 'pgcron'::regnamespace and obj_description(p.oid) is null"""
        )
        == []
    )


# What the text of a SQL job calls, as whatever role it becomes: they touch the caller's own session and rights alone.
STEPS = {"progress", "save_state", "state", "run_after"}


def test_every_function_pins_its_search_path(database: Database) -> None:
    assert (
        database.rows(
            """select p.oid::regprocedure::text, p.proconfig from pg_proc p
                where p.pronamespace = 'pgcron'::regnamespace
                  and (p.proconfig @> array['search_path=pg_catalog, pg_temp']) is not true"""
        )
        == []
    )


def test_only_the_steps_of_a_sql_job_are_for_everybody_and_none_lends_its_owners_rights(database: Database) -> None:
    open_to_all = database.rows(
        """select p.proname, p.prosecdef from pg_proc p
            where p.pronamespace = 'pgcron'::regnamespace
              and (p.prosecdef or p.proacl is null
                   or exists (select from aclexplode(p.proacl) a where a.grantee = 0))"""
    )
    assert sorted(open_to_all) == [(name, False) for name in sorted(STEPS)]


def test_instants_are_timestamptz_and_ids_name_what_they_point_at(database: Database) -> None:
    assert (
        database.rows(
            """select table_name, column_name, data_type from information_schema.columns
                where table_schema = 'pgcron'
                  and (data_type = 'timestamp without time zone'
                       or (column_name ~ '_(at|until)$' and column_name <> 'quiet_until'
                           and data_type <> 'timestamp with time zone'))"""
        )
        == []
    )


def test_every_foreign_key_has_an_index_behind_it(database: Database) -> None:
    """Else deleting a job would read the whole history."""
    assert (
        database.rows(
            """select c.conrelid::regclass, c.conname from pg_constraint c
                where c.contype = 'f' and c.connamespace = 'pgcron'::regnamespace
                  and not exists (select from pg_index i where i.indrelid = c.conrelid and i.indkey[0] = c.conkey[1]
                                     and i.indpred is null)"""
        )
        == []
    )


def test_an_ordinary_role_sees_nothing_until_it_is_let_in(database: Database) -> None:
    assert database.value("select has_schema_privilege('worker', 'pgcron', 'usage')") is False
