"""Texts of others inside a message: whatever a job prints or is called can neither change the layout nor call people.

Pure. In Markdown a foreign text is code: every dialect shows code as it is, while they agree on no way to escape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
# Control characters but for tab and line break, and those that turn the direction of what follows.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
# `ops@example.org` calls nobody, `@ops` may; some services find `@everyone` in the middle of a word.
_MENTION = re.compile(r"(?<!\w)@(?=\w)|@(?=(?:everyone|here|channel|all)\b)|<(?=[!@#])", re.IGNORECASE)
_MARKDOWN = re.compile(r"([\\`*_\[\]()<>#|~!&])")
_BREAKER = "\u200b"


@dataclass(frozen=True, slots=True)
class Form:
    """How a message is written. `longest`: characters that its body may have.

    `defused`: what could be a mention is broken by a space of no width, which must not be where nobody is mentioned.
    """

    markdown: bool = False
    defused: bool = True
    longest: int = 30_000


PLAIN = Form(defused=False)


def cleaned(text: str) -> str:
    """Without what commands a terminal or turns the direction of writing; line breaks and tabs stay."""
    text = text.replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text.replace("\r", "\n"))


def one_line(text: str, longest: int) -> str:
    """The text on a line of its own, cut with a mark."""
    return shortened(" ".join(text.split()), longest)


def shortened(text: str, longest: int) -> str:
    """Its beginning, with a mark where something is missing."""
    return text if len(text) <= longest else text[: max(longest - 1, 0)].rstrip() + "…"


def defuse(text: str, form: Form) -> str:
    """The text, which calls nobody."""
    return _MENTION.sub(lambda found: found[0] + _BREAKER, text) if form.defused else text


def inline(text: str, form: Form) -> str:
    """A foreign text within a line."""
    text = defuse(" ".join(text.split()), form)
    return f"`{text.replace('`', chr(39))}`" if form.markdown and text else text


def escaped(text: str, form: Form) -> str:
    """A foreign text that cannot be code, such as a title that becomes a heading."""
    text = defuse(text, form)
    return _MARKDOWN.sub(r"\\\1", text) if form.markdown else text


def block(text: str, form: Form) -> str:
    """Foreign lines of their own."""
    text = defuse(text, form)
    if form.markdown:
        return "```\n" + text.replace("```", "'''") + "\n```"
    return "\n".join(f"  | {line}" for line in text.split("\n"))


def block_of_tail(text: str, form: Form, *, lines: int, room: int) -> str:
    """The last lines as a block of at most `room` characters, the first of them cut; empty where no room is left."""
    tail = text.rstrip().split("\n")[-lines:]
    while tail and len(written := block("\n".join(tail), form)) > room:
        excess = len(written) - room
        tail = [f"…{tail[0][excess + 1 :]}", *tail[1:]] if len(tail[0]) > excess + 1 else tail[1:]
    return block("\n".join(tail), form) if tail and any(tail) else ""
