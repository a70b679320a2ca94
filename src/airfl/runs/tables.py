"""Rows as tables of other libraries: Arrow, which is always there, and pandas, which is an extra."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airfl.errors import InputError
from airfl.rounds import RoundRecord


def record_schema() -> list[tuple[str, pa.DataType]]:
    """The columns of a record. An infinite ε (no protection) is kept as such, and NaN where none was computed."""
    kinds = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
    return [(field.name, kinds[str(field.type)]) for field in dataclasses.fields(RoundRecord)]


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Records as a table.

    Arrow would load pandas to look at a list. Numbers are handed on as they lie in memory, text by its bytes.
    """
    schema = pa.schema(record_schema())
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if field.type == pa.string():
            texts = [value.encode() for value in values]
            ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
            buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(texts))]
        else:
            buffers = [None, pa.py_buffer(np.array(values, dtype=field.type.to_pandas_dtype()).tobytes())]
        columns.append(pa.Array.from_buffers(field.type, len(values), buffers))
    return pa.Table.from_arrays(columns, schema=schema)


def frame_of(table: pa.Table) -> Any:
    """A table as a ``pandas.DataFrame``."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise InputError('`to_pandas` needs pandas; install it with: pip install "airfl[notebook]"') from None
    return table.to_pandas()


def rows_of(data: bytes) -> list[dict[str, Any]]:
    """The rows of a Parquet file in memory.

    The bytes are copied into Arrow's own memory, and read without its threads: one that outlives the interpreter with
    memory of Python's in hand aborts the process.
    """
    stream = pa.BufferOutputStream()
    stream.write(data)
    rows: list[dict[str, Any]] = pq.ParquetFile(pa.BufferReader(stream.getvalue())).read(use_threads=False).to_pylist()
    return rows
