"""SQL scripts are split as psql splits them, and the statements that no job can use are known by their words."""

from __future__ import annotations

import pytest

from pgcron_runner.execution.sql.script import copies_to_client, split_statements, transaction_end


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("select 1", ["select 1"]),
        ("select 1;", ["select 1"]),
        ("select 1; select 2 ;\n", ["select 1", "select 2"]),
        ("", []),
        (" ; ;; ", []),
        ("-- nothing", []),
        ("/* nothing; /* nested; */ still */", []),
        ("select ';'; select 2", ["select ';'", "select 2"]),
        ("select 'it''s; fine'; select 2", ["select 'it''s; fine'", "select 2"]),
        (r"select E'a\'; b'; select 2", [r"select E'a\'; b'", "select 2"]),
        (r"select 'a\'; select 2", [r"select 'a\'", "select 2"]),
        ('select ";" from "a;""b"; select 2', ['select ";" from "a;""b"', "select 2"]),
        ("do $$ begin perform 1; end $$; select 2", ["do $$ begin perform 1; end $$", "select 2"]),
        ("do $x$ select $$;$$; $x$; select 2", ["do $x$ select $$;$$; $x$", "select 2"]),
        ("select $1; select a$b$c; select 2", ["select $1", "select a$b$c", "select 2"]),
        ("select 1 -- one; two\n; select 2", ["select 1 -- one; two", "select 2"]),
        ("select 1 /* ; */; select 2", ["select 1 /* ; */", "select 2"]),
        ("create rule r as on insert to t do (select 1; select 2); select 3",
         ["create rule r as on insert to t do (select 1; select 2)", "select 3"]),
        ("create function f() returns int begin atomic select 1; select case when true then 1 end; end; select 2",
         ["create function f() returns int begin atomic select 1; select case when true then 1 end; end", "select 2"]),
        ("create or replace procedure p() language sql begin atomic; end; call p()",
         ["create or replace procedure p() language sql begin atomic; end", "call p()"]),
        ("begin; select 1; end; commit", ["begin", "select 1", "end", "commit"]),
        ("select 'unclosed; select 2", ["select 'unclosed; select 2"]),
        ("select '100%', 5 % 2", ["select '100%', 5 % 2"]),
        ("select 'äöü;€'; select 2", ["select 'äöü;€'", "select 2"]),
    ],
)  # fmt: skip
def test_a_script_is_split_where_psql_would_split_it(script: str, statements: list[str]) -> None:
    assert split_statements(script) == statements


@pytest.mark.parametrize(
    ("statement", "ends"),
    [
        ("commit", "COMMIT"),
        ("End", "END"),
        ("-- x\nabort", "ABORT"),
        ("rollback and chain", "ROLLBACK"),
        ("rollback prepared 'x'", "ROLLBACK"),
        ("prepare transaction 'x'", "PREPARE TRANSACTION"),
        ("rollback to a", None),
        ("rollback work to savepoint a", None),
        ("prepare p as select 1", None),
        ("begin", None),
        ("select 'commit'", None),
        ('"commit"', None),
        ("", None),
    ],
)
def test_the_words_that_end_a_transaction(statement: str, ends: str | None) -> None:
    assert transaction_end(statement) == ends


@pytest.mark.parametrize(
    ("statement", "is_one"),
    [
        ("copy t from stdin", True),
        ('copy "T" (a, b) from /* x */ stdin with (format csv)', True),
        ("copy (select $$;$$, 'a') to stdout", True),
        ("copy t from '/dev/stdin'", False),
        ("copy t to program 'cat > stdout'", False),
        ("select stdin from stdin", False),
        ("", False),
    ],
)
def test_a_copy_from_or_to_a_client_is_known(statement: str, is_one: bool) -> None:
    assert copies_to_client(statement) is is_one


def test_a_remark_ends_with_its_line_whatever_ends_the_line() -> None:
    assert split_statements("-- one; two\rselect 1;\r\nselect 2") == ["-- one; two\rselect 1", "select 2"]
