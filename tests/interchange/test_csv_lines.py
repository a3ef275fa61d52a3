"""The line that a row of CSV begins in, whatever is in the rows before it and between them."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalog.errors import UnwritableError
from kafkalog.interchange.csv_lines import RowLines, WatchedStream
from kafkalog.interchange.text_input import TextOptions, read_csv

VALUES = st.text("a\n\r", max_size=6).map(lambda text: text.replace("\r", "\r\n")) | st.sampled_from(
    ['"', ",", '\n"\n']
)
ROWS = st.lists(st.tuples(VALUES, VALUES, st.integers(0, 3)), max_size=20)
ENDS = st.sampled_from(["\n", "\r\n"])


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if set(text) & set('"\n,') else text


def known(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name in ("timestamp", "key", "value")]


def written(rows: list[Any], end: str, header: str = "timestamp,key,value") -> tuple[str, int]:
    """The text of rows with blank lines behind them, and the line behind it."""
    text = header + end + "".join(f"1,{quoted(a)},{quoted(b)}{end}{end * n}" for a, b, n in rows)
    return text, text.count("\n") + 1


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog.interchange.csv_lines._NOTED_BYTES", 37)


def refusal(text: str, block_bytes: int) -> str:
    with pytest.raises(UnwritableError) as caught:
        list(read_csv(io.BytesIO(text.encode()), TextOptions(encoding="utf8"), known, block_bytes=block_bytes))
    return caught.value.detail


@settings(max_examples=40)
@given(ROWS, ROWS, ENDS, st.sampled_from([60, 100, 10_000]))
@example([("a", "", 0)], [], "\r\n", 100)
@example([('\n"\n', "\n\n", 2)] * 9, [("\n", "", 3)], "\n", 60)
def test_the_line_of_a_value_or_row_that_is_refused_is_right(
    rows: list[Any], behind: list[Any], end: str, block_bytes: int
) -> None:
    text, line = written(rows, end)
    rest = written(behind, end, "")[0].removeprefix(end)
    assert refusal(f"{text}?,a,b{end}{rest}", block_bytes).startswith(f"line {line}: timestamp is neither")
    assert refusal(f"{text}1,b{end}{rest}", block_bytes) == f"line {line}: 3 columns are expected, not 2: '1,b'"
    assert refusal(f'{text}1,a,"{"x" * 30}', block_bytes).startswith(f"line {line}: ")
    unclosed = f'{text}1,"x{end}","y{end}{end}z'
    assert refusal(unclosed, block_bytes) == f"line {line + 1}: a quote has no end: is the file whole?"
    assert refusal(text + "a" * 20_000, block_bytes).startswith(f"line {line}: ")


@given(st.lists(st.sampled_from(['a"', '"', 'b "c" d"', 'x""y"']), min_size=1, max_size=9), st.booleans())
def test_quotes_within_a_value_that_is_in_none_are_its_own(values: list[str], has_end: bool) -> None:
    if values[-1] == '"':
        values = [*values, "z"]
    values = ["k" + value for value in values]
    text = "key,value\n" + "\n".join(f"a,{value}" for value in values) + "\n" * has_end
    batches = list(read_csv(io.BytesIO(text.encode()), TextOptions(encoding="utf8"), known))
    assert [value.decode() for batch in batches for value in batch.column("value").to_pylist()] == values


@pytest.mark.parametrize("text", ["\r\n", "\r", "\n", "\r\n\r\n"])
def test_line_ends_in_quotes_are_kept_where_a_block_ends(text: str) -> None:
    for n in range(40):
        content = f'key,value\n{"k" * n},"{text}a{text}b{text}"\nx,y\n'.encode()
        batches = list(read_csv(io.BytesIO(content), TextOptions(encoding="utf8"), known, block_bytes=50))
        found = [value.decode() for batch in batches for value in batch.column("value").to_pylist()]
        assert found == [f"{text}a{text}b{text}", "y"]


def test_names_of_columns_may_take_several_lines() -> None:
    text = 'value,"a\nb\n",timestamp\nx,y,?\n'
    assert refusal(text, 1000).startswith("line 4: timestamp")
    assert "unexpected end of data" in refusal('"value,key\nx,y\n', 1000)


def test_memory_does_not_grow_with_lines_that_no_row_begins_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog.interchange.csv_lines._NOTED_BYTES", 2**20)
    stream = WatchedStream(io.BytesIO(b"\n" * 2**23 + b'"' + b"\n" * 2**23 + b'"\nx'), 2)
    lines = RowLines(stream, 2, has_blank=True)
    tracemalloc.start()
    while stream.read(2**22):
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 12 * 2**23
    assert lines.line_ahead(0) == 2 + 2**23
    assert lines.line_ahead(1) == 3 + 2**24
