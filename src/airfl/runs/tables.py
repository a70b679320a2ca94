"""Rows as tables of other libraries: Arrow, which is always there, and pandas, which is an extra."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

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
