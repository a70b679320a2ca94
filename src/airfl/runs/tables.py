"""Rows as tables of other libraries: Arrow, which is always there, and pandas, which is an extra."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airfl.errors import InputError
from airfl.rounds import RoundRecord


def record_schema() -> list[tuple[str, pa.DataType]]:
    """The columns of a record. An infinite ε (no protection) is kept as such, and NaN where none was computed."""
    kinds = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
    return [(field.name, kinds[str(field.type)]) for field in dataclasses.fields(RoundRecord)]


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
