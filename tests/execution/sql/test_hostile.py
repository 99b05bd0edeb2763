"""Text that means ill, or does not know better, harms neither its worker nor the next job, and cannot fake a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Outcome, Status
from tests.execution.sql.stage import ALONE, DONE, MakeRunner, work
from tests.execution.tasks import claimed_task, recorded_status, session_pids, text_of, value_of
from tests.support.databases import Database

OWN_ROW = "where id = current_setting('pgcron.run_id')::bigint"
NOT_ITS_RECORD = "the command ended its own transaction, or changed the row of its own run; it was rolled back"
LOST = "the session was lost; the work was rolled back"
STAYS = "the session was lost; what had been done before stays, since there was no transaction"
GOOD, FAILED = Status.SUCCEEDED, Status.FAILED


@dataclass(frozen=True)
class Case:
    """What a job does after its work, how that ends, and words from its error or reason."""

    text: str
    status: Status
    words: str = ""

    def __str__(self) -> str:
        return self.text[:60]


TRANSACTION = [
    # Leaving the transaction.
    Case("commit", FAILED, "launch failed: COMMIT would end the transaction"),
    Case("end", FAILED, "launch failed: END would"),
    Case("abort", FAILED, "launch failed: ABORT would"),
    Case("rollback", FAILED, "launch failed: ROLLBACK would"),
    Case("commit and chain", FAILED, "launch failed: COMMIT would"),
    Case("prepare transaction 'p'", FAILED, "launch failed: PREPARE TRANSACTION would"),
    Case("do $$begin commit; end$$", FAILED, "2D000: invalid transaction termination"),
    Case("do $$begin rollback; end$$", FAILED, "2D000"),
    Case("do $$begin execute 'commit'; end$$", FAILED, "0A000: EXECUTE of transaction commands is not implemented"),
    Case("call ends_it()", FAILED, "2D000"),
    Case("select ends_it_inside()", FAILED, "2D000"),
    Case("begin; savepoint a; rollback to a; release a", GOOD),
    # Loosening what holds it.
    Case("discard all", FAILED, "25001: DISCARD ALL cannot run inside a transaction block"),
    Case("select pg_advisory_unlock_all()", GOOD),
    Case("reset all", GOOD),
    Case("set pgcron.run_id = '1'; set local pgcron.job = ''; set pgcron.transaction = 'off'", GOOD),
    Case("deallocate all; discard plans; discard temp; discard sequences", GOOD),
    Case("listen pgcron; notify pgcron, 'nonsense'; unlisten *", GOOD),
    Case("declare c cursor with hold for select 1", GOOD),
    Case("load 'plpgsql'", GOOD),
    # Being somebody else.
    Case("set session authorization worker", GOOD),
    Case("set local session authorization worker", GOOD),
    Case("set role worker", GOOD),
    Case("set role none", GOOD),
    # Writing its own record.
    Case(f"update pgcron.runs set status = 'succeeded', finished_at = now() {OWN_ROW}", FAILED, NOT_ITS_RECORD),
    Case(f"do $$begin update pgcron.runs set worker_id = gen_random_uuid() {OWN_ROW}; end$$", FAILED, NOT_ITS_RECORD),
    Case(f"delete from pgcron.runs {OWN_ROW}", FAILED, NOT_ITS_RECORD),
    Case(f"update pgcron.runs set result = '1', output = 'x', progress = '2' {OWN_ROW}", GOOD),
    Case("select set_config('pgcron.transaction', 'off', true); select pgcron.save_state('1')", FAILED, "42704"),
    # Ending its own session, or tightening its limits.
    Case("select pg_terminate_backend(pg_backend_pid())", Status.LOST, LOST),
    Case("select pg_cancel_backend(pg_backend_pid()), pg_sleep(9)", FAILED, "57014"),
    Case("set statement_timeout = 20; select pg_sleep(9)", FAILED, "57014: canceling statement due to statement"),
    Case("set lock_timeout = 1; set deadlock_timeout = 1", GOOD),
    Case("set client_connection_check_interval = 0; set tcp_keepalives_idle = 1", GOOD),
    Case("set session characteristics as transaction read only; set default_transaction_deferrable = on", GOOD),
    Case("set transaction read only", FAILED, "a read-only transaction cannot record that the job succeeded"),
    Case("set transaction isolation level serializable", FAILED, "25001"),
    # Changing how our statements are read.
    Case("set search_path = ''", GOOD),
    Case("set client_min_messages = 'error'; set datestyle = 'German'; set timezone = 'Asia/Tokyo'", GOOD),
    Case("set transform_null_equals = on; set quote_all_identifiers = on; set array_nulls = off", GOOD),
    Case("set standard_conforming_strings = off; set backslash_quote = on", GOOD),
    Case("set client_encoding = 'SJIS'", GOOD),
    Case("set client_encoding = 'SQL_ASCII'", GOOD),
    Case("set client_encoding = 'MULE_INTERNAL'", FAILED, "0A000: invalid value for parameter"),
    Case("set client_encoding = 'EUC_TW'", GOOD),
    Case("set constraints all deferred; set enable_seqscan = off; set work_mem = '64kB'", GOOD),
]
AUTOCOMMIT = [
    Case("commit; rollback; abort; end", GOOD),
    Case("discard all", GOOD),
    Case("reset all; set search_path = ''; set role worker", GOOD),
    Case("set session authorization worker", GOOD),
    Case("begin", FAILED, "the command left a transaction open; it was rolled back"),
    Case("begin; select 1/0", FAILED, "22012"),
    Case("begin; prepare transaction 'p'; rollback prepared 'p'", GOOD),
    Case("listen pgcron; declare c cursor with hold for select 1; select pg_advisory_lock(12)", GOOD),
    Case("call ends_it()", GOOD),
    Case("select pg_terminate_backend(pg_backend_pid())", Status.LOST, STAYS),
    Case("set client_encoding = 'EUC_TW'", GOOD),
    Case("set default_transaction_read_only = on", GOOD),
    Case("select set_config('pgcron.next_runs', 'x', false)", FAILED, "pgcron.next_runs does not hold JSON"),
]


@pytest.fixture
def database(database: Database) -> Database:
    database.execute("create procedure ends_it() language plpgsql as $$begin commit; end$$")
    database.execute(
        "create function ends_it_inside() returns int language plpgsql as $$begin call ends_it(); return 1; end$$"
    )
    return database


@pytest.mark.parametrize("case", TRANSACTION, ids=str)
async def test_in_a_transaction(database: Database, make_runner: MakeRunner, case: Case) -> None:
    runner = make_runner(sessions_=1)
    task = claimed_task(database, f"{DONE}; {case.text}")
    outcome = await runner.run(task, Stop(), Live())
    assert_ended_so(outcome, case)
    done = 1 if case.status is GOOD else 0
    assert (work(database), recorded_status(database, task)) == (done, "succeeded" if done else "running")
    assert database.rows("select gid from pg_prepared_xacts") == []
    await assert_the_next_job_is_at_home(database, runner)


@pytest.mark.parametrize("case", AUTOCOMMIT, ids=str)
async def test_without_a_transaction(database: Database, make_runner: MakeRunner, case: Case) -> None:
    runner = make_runner(sessions_=1)
    outcome = await runner.run(claimed_task(database, f"{DONE}; {case.text}", args=ALONE), Stop(), Live())
    assert_ended_so(outcome, case)
    assert work(database) == 1
    await assert_the_next_job_is_at_home(database, runner)


def assert_ended_so(outcome: Outcome, case: Case) -> None:
    assert outcome.status is case.status, outcome
    assert case.words in f"{outcome.error} {outcome.reason}", outcome
    if case.status is GOOD:
        assert outcome.error is outcome.reason is None


async def assert_the_next_job_is_at_home(database: Database, runner: Any) -> None:
    """It finds nothing of the one before, and is recorded."""
    look = """select jsonb_build_array(session_user, current_user, current_setting('search_path'),
        current_setting('client_encoding'), current_setting('transaction_read_only'),
        current_setting('standard_conforming_strings'), current_setting('idle_in_transaction_session_timeout'),
        (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'),
        (select count(*) from pg_listening_channels()), (select count(*) from pg_cursors where is_holdable))"""
    outcome = await runner.run(claimed_task(database, look, name="next"), Stop(), Live())
    assert outcome.recorded
    user = database.value("select current_user::text")
    # The one lock is its own transaction's.
    assert value_of(outcome) == [user, user, '"$user", public', "UTF8", "off", "on", "1min", 1, 0, 0]
    assert len(session_pids(database)) == 1


SMUGGLED = "\\'); delete from work; commit; select ('\\\\ \" $$ %s %(x)s {} 🎉"


@pytest.mark.parametrize("strings", ["on", "off"])
@pytest.mark.parametrize("encoding", ["UTF8", "SJIS", "GBK", "BIG5"])
async def test_what_a_job_prints_and_is_called_stays_text_in_its_record(
    database: Database, make_runner: MakeRunner, strings: str, encoding: str
) -> None:
    runner, printed = make_runner(), SMUGGLED if encoding == "UTF8" else SMUGGLED.replace("🎉", "表")
    command = f"""{DONE}; set standard_conforming_strings = {strings}; set client_encoding = '{encoding}';
        do $body$begin raise notice '%', $x${printed}$x$; end$body$; select $x${printed}$x$"""
    task = claimed_task(database, command, name="it's \\' a job; --", output_limit_kb=64)
    outcome = await runner.run(task, Stop(), Live())
    assert outcome.recorded, outcome
    [(output, result)] = database.rows("select output, result ->> 'value' from pgcron.runs")
    assert (result, work(database)) == (printed, 1)
    assert output == text_of(outcome)
    assert f"NOTICE: {printed}\n" in output
