"""SQL scripts are split as psql splits them."""

from __future__ import annotations

import pytest

from pgcron_runner.execution.sql.script import split_statements


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
