"""What commands print, as Postgres text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgcron_runner.execution.output import OutputBuffer, storable


def rendered(data: bytes, limit: int = 1000, chunk: int = 7) -> str:
    buffer = OutputBuffer(limit)
    for start in range(0, len(data), chunk):
        buffer.append(data[start : start + chunk])
    assert buffer.render().total_bytes == len(data)
    return buffer.render().text


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        (b"", ""),
        ("héllo 😀\n".encode(), "héllo 😀\n"),
        (b"a\0b\xffc", "a␀b\\xffc"),
        (b"caf\xe9", "caf\\xe9"),
        (b"\\u0000 and \\x00", "\\u0000 and \\x00"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        (b"cut \xf0\x9f\x98", "cut \\xf0\\x9f\\x98"),
    ],
)
def test_text_stays_and_other_bytes_are_marked(printed: bytes, kept: str) -> None:
    assert rendered(printed) == kept


def test_error_texts_become_storable() -> None:
    assert storable("a\0b \ud800 \\u0000 😀") == "a␀b \\ud800 \\u0000 😀"


def test_output_up_to_the_limit_is_whole() -> None:
    buffer = OutputBuffer(10)
    buffer.append(b"0123456789")
    assert buffer.render().text == "0123456789"
    assert not buffer.render().truncated


def test_of_longer_output_head_and_tail_are_kept_and_the_rest_is_counted() -> None:
    buffer = OutputBuffer(10)
    for _ in range(3000):
        buffer.append(b"0123456789")
    output = buffer.render()
    assert output.text == "01234\n… 29,990 bytes left out …\n56789"
    assert (output.total_bytes, output.truncated) == (30_000, True)


def test_no_character_is_cut_in_halves() -> None:
    for limit in range(20):
        text = rendered("aé😀".encode() * 50, limit)
        assert "\\x" not in text
        left_out = int(text.split("… ")[1].split(" bytes")[0])
        head, tail = text.split(f"\n… {left_out} bytes left out …\n")
        assert len((head + tail).encode()) + left_out == 50 * 7


@given(st.binary(max_size=300), st.integers(0, 100), st.integers(1, 50))
def test_any_bytes_become_storable_text_of_bounded_size(data: bytes, limit: int, chunk: int) -> None:
    text = rendered(data, limit, chunk)
    assert storable(text) == text
    assert len(text) <= 4 * limit + 40
