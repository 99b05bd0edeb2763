"""Splits a SQL script into its statements, as psql does, and knows those that no job can use.

It knows no server and checks no syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise

_TOKEN = re.compile(
    r"""
      (?P<comment>--[^\r\n]*)
    | (?P<block>/\*)
    | (?P<escape>[eE]'(?:[^'\\]|\\.|'')*'?)
    | (?P<string>'(?:[^']|'')*'?)
    | (?P<quoted>"(?:[^"]|"")*"?)
    | (?P<dollar>\$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?\$)
    | (?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
    | (?P<number>[0-9]+)
    | (?P<open>\()
    | (?P<close>\))
    | (?P<end>;)
    """,
    re.VERBOSE | re.DOTALL,
)


def split_statements(script: str) -> list[str]:
    """The statements of a script in their order, without the semicolons; empty ones and lone comments are left out.

    Knows strings, quoted names, dollar quotes, nested comments, parentheses and `begin atomic` bodies. An unclosed
    quote runs to the end of the text, where the server will complain about it.
    """
    statements: list[str] = []
    start = position = 0
    parentheses = blocks = 0
    words: list[str] = []
    while (token := _TOKEN.search(script, position)) is not None:
        position = token.end()
        match token.lastgroup:
            case "block":
                position = _after_comment(script, position)
            case "dollar":
                position = _after_dollar_quote(script, position, token[0])
                words.append("$")
            case "open":
                parentheses += 1
            case "close":
                parentheses = max(parentheses - 1, 0)
            case "word":
                words.append(token[0].lower())
                blocks = _blocks_after(words, blocks)
            case "end" if parentheses == 0 and blocks == 0:
                if script[start : token.start()].strip() and words:
                    statements.append(script[start : token.start()].strip())
                start, words = position, []
            case "comment" | "end":
                pass
            case _:
                words.append("?")
    if script[start:].strip() and words:
        statements.append(script[start:].strip())
    return statements


def transaction_end(statement: str) -> str | None:
    """The words by which a statement would end the transaction it runs in, such as `COMMIT`; None for all others.

    Complete, since the server takes one statement at a time, and no function or procedure can do so from within.
    """
    match list(islice(_words(statement), 3)):
        case ["commit" | "end" | "abort" as word, *_]:
            return word.upper()
        case ["rollback", *others] if "to" not in others:
            return "ROLLBACK"
        case ["prepare", "transaction", *_]:
            return "PREPARE TRANSACTION"
    return None


def copies_to_client(statement: str) -> bool:
    """Whether it is a COPY from or to a client, which a job does not have."""
    words = _words(statement)
    return next(words, "") == "copy" and not {("from", "stdin"), ("to", "stdout")}.isdisjoint(pairwise(words))


def _words(statement: str) -> Iterator[str]:
    """Its words in lower case, but for those in comments, strings and quoted names."""
    position = 0
    while (token := _TOKEN.search(statement, position)) is not None:
        position = token.end()
        match token.lastgroup:
            case "block":
                position = _after_comment(statement, position)
            case "dollar":
                position = _after_dollar_quote(statement, position, token[0])
            case "word":
                yield token[0].lower()


def _blocks_after(words: list[str], blocks: int) -> int:
    """How deep in `begin atomic … end` the text is after its latest word; only routine definitions have such bodies."""
    if words[0] != "create" or not {"function", "procedure"} & set(words[1:4]):
        return 0
    match words[-1]:
        case "begin":
            return blocks + 1
        case "case" if blocks:
            return blocks + 1
        case "end" if blocks:
            return blocks - 1
    return blocks


def _after_comment(script: str, position: int) -> int:
    depth = 1
    for mark in re.finditer(r"/\*|\*/", script[position:]):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return position + mark.end()
    return len(script)


def _after_dollar_quote(script: str, position: int, tag: str) -> int:
    end = script.find(tag, position)
    return len(script) if end < 0 else end + len(tag)
