"""Brings the schema of a database to what this program needs. It must not know what the tables mean."""

from __future__ import annotations

import asyncio
import hashlib

from pgcron_runner.database import Connection, Database, DatabaseError, Purpose, explain
from pgcron_runner.errors import SchemaMissing, SchemaOutdated, SchemaTooNew
from pgcron_runner.statements import Migration, migrations, query

# Any constant will do; it only has to be the same in every copy of this program.
_LOCK_KEY = int.from_bytes(hashlib.sha256(b"pgcron-runner migrate").digest()[:7])


async def migrate(database: Database, *, dry_run: bool = False) -> list[Migration]:
    """Applies what is missing, in one transaction, and returns it; with `dry_run` only returns it.

    Two at once are fine: the second waits up to a minute for the first. Raises SchemaTooNew where the database has
    a breaking migration that this program does not know.
    """
    connection = await database.connect(Purpose.ADMIN)
    try:
        async with connection.transaction():
            if dry_run:
                return _missing(await _applied(connection))
            await connection.execute("set local lock_timeout = '60s'")
            await connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
            missing = _missing(await _applied(connection))
            for migration in missing:
                await _apply(connection, migration)
            return missing
    except DatabaseError as error:
        raise explain(error) from error
    finally:
        await connection.close()


def migrate_database(dsn: str) -> list[str]:
    """Migrates the database that `dsn` names; returns the names of what was applied. For scripts and tests."""
    return [f"{m.version:04}_{m.name}" for m in asyncio.run(migrate(Database(dsn)))]


async def check_schema(connection: Connection) -> None:
    """Raises SchemaMissing, SchemaOutdated or SchemaTooNew unless this program can work on the schema."""
    applied = await _applied(connection)
    if not applied:
        raise SchemaMissing
    if _missing(applied):
        raise SchemaOutdated


async def _applied(connection: Connection) -> dict[int, bool]:
    """Version -> breaking, of what is in the database; empty where there is no schema."""
    cursor = await connection.execute("select to_regclass('pgcron.schema_migrations') is not null")
    row = await cursor.fetchone()
    if row is None or not row[0]:
        return {}
    cursor = await connection.execute(query("list_migrations"))
    return dict(await cursor.fetchall())


def _missing(applied: dict[int, bool]) -> list[Migration]:
    known = {migration.version for migration in migrations()}
    newer = [version for version, breaking in applied.items() if breaking and version not in known]
    if newer:
        raise SchemaTooNew(
            f"The database has schema version {max(newer)}, and this pgcron-runner knows versions up to {max(known)}. "
            "Upgrade pgcron-runner on this host; the schema stays as it is."
        )
    return [migration for migration in migrations() if migration.version not in applied]


async def _apply(connection: Connection, migration: Migration) -> None:
    await connection.execute(migration.text.encode())
    await connection.execute(
        query("record_migration"),
        {"version": migration.version, "name": migration.name, "breaking": migration.breaking},
    )
