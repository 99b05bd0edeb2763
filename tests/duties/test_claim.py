"""Claim: what it asks before it claims, on a real session."""

from __future__ import annotations

from tests.duties.stage import LANE, staged
from tests.statements.builders import add_job, add_run, statuses
from tests.support.databases import Database


async def test_a_worker_that_may_begin_nothing_on_its_new_session_claims_nothing(database: Database) -> None:
    job_id = add_job(database)
    add_run(database, job_id, run_at="2020-01-01 00:00Z")
    async with staged(database.dsn) as worker:
        # Gone between the look and the claim, for instance since the server has been replaced by its standby.
        await worker.control.close()
        adopted = False

        async def adopt(_: object) -> None:
            nonlocal adopted
            adopted = True

        worker.control._on_connect = adopt
        claimed = await worker.claim.step(LANE, limit=1, allowed=lambda: not adopted)
        assert adopted
        assert claimed.tasks == []
        assert statuses(database, job_id) == ["queued"]
        adopted = False
        assert len((await worker.claim.step(LANE, limit=1, allowed=lambda: not adopted)).tasks) == 1
