"""Any table with a device column: CSV or Parquet, its columns as the configuration declares them.

Every sentence that refuses a table says where and what. Categories, classes and ranges are declared and not counted:
counted from the rows, one row could change the shape of the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airfl.config.table import text_of
from airfl.devices.dataset import Dataset
from airfl.devices.fleets.encoding import one_hot
from airfl.errors import InputError, in_words


def load_table(declared: str, data_dir: str | None = None) -> Dataset:
    """The samples of a table; ``declared`` is ``Learning.declared``. Its file is looked for in ``data_dir`` first."""
    said: dict[str, Any] = json.loads(declared)
    path = Path(said["table_file"]).expanduser()
    path = path if data_dir is None else Path(data_dir) / path
    inputs: Mapping[str, Mapping[str, Any]] = said["columns"]
    names = (said["device_column"], said["label_column"], *inputs)
    order = said["order_column"]
    cells = _read(path, (*names, *([order] if order else [])))
    devices, owners = np.unique(_texts(cells[names[0]], path, names[0]), return_inverse=True)
    Dataset.check_devices(len(devices))
    classes = [text_of(value) for value in said["label_classes"]]
    labels = _codes(cells[names[1]], classes, path, names[1], "`learning.label_classes`")
    blocks, measured, place = [], [], 0
    for name, column in inputs.items():
        block = _encoded(cells[name], column, path, name)
        if column["low"] is not None:
            measured.append(place)
        place += block.shape[1]
        blocks.append(block)
    ranks = None if order is None else _numbers(cells[order], path, order)
    later = None if ranks is None else _latest(owners, ranks, said["test_fraction"])
    return Dataset.of_devices(
        np.concatenate(blocks, axis=1),
        labels,
        owners=owners,
        later=later,
        num_classes=len(classes),
        measured=tuple(measured),
    )


def _read(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """The columns that are asked for, cell by cell."""
    import pyarrow as pa
    import pyarrow.csv as pcsv
    import pyarrow.parquet as pq

    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"table {path} cannot be read: {in_words(error)}; see `learning.table_file`") from None
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        else:
            parse = pcsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
            table = pcsv.read_csv(pa.BufferReader(data), convert_options=parse)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"table {path} is no CSV or Parquet that can be read: {str(error).splitlines()[0]}") from None
    for name in names:
        if name not in table.column_names:
            raise InputError(f"table {path} has no column `{name}`; it has: {', '.join(table.column_names[:20])}")
        if table.column_names.count(name) > 1:
            raise InputError(f"table {path} has two columns `{name}`; rename one of them")
    if table.num_rows == 0:
        raise InputError(f"table {path} has no rows")
    return {name: table[name].to_pylist() for name in names}


def _texts(cells: list[Any], path: Path, name: str) -> np.ndarray:
    """Cells as text; an empty one is refused."""
    texts = [None if cell is None or cell != cell else text_of(cell).strip() for cell in cells]
    for row, text in enumerate(texts):
        if not text or text.lower() == "nan":
            raise InputError(
                f"table {path} has no value in column `{name}`, row {row + 1}; fill it in, or drop the row"
            )
    return np.array(texts)


def _codes(cells: list[Any], known: Sequence[str], path: Path, name: str, where: str) -> np.ndarray:
    """Numbers of cells among the values that are declared."""
    number = {value: code for code, value in enumerate(known)}
    texts = _texts(cells, path, name)
    codes = np.array([number.get(_plain(text, number), -1) for text in texts.tolist()])
    if (codes < 0).any():
        row = int(np.flatnonzero(codes < 0)[0])
        raise InputError(
            f"table {path} has `{texts[row]}` in column `{name}`, row {row + 1}, which {where} does not declare; "
            "declare it, or drop the row"
        )
    return codes


def _plain(text: str, known: Mapping[str, int]) -> str:
    """A text as declared, or the whole number that it is: a CSV may say 1.0 for 1."""
    if text in known:
        return text
    try:
        return text_of(float(text))
    except ValueError:
        return text.lower() if text.lower() in known else text


def _numbers(cells: list[Any], path: Path, name: str) -> np.ndarray:
    """Finite numbers."""
    found = np.empty(len(cells))
    for row, cell in enumerate(cells):
        try:
            found[row] = float(cell) if cell is not None and cell != "" else np.nan
        except (TypeError, ValueError):
            raise InputError(
                f"table {path} has `{cell}` in column `{name}`, row {row + 1}; a number is expected there"
            ) from None
        if not np.isfinite(found[row]):
            raise InputError(
                f"table {path} has no finite number in column `{name}`, row {row + 1}; fill it in, or drop the row"
            )
    return found


def _encoded(cells: list[Any], column: Mapping[str, Any], path: Path, name: str) -> np.ndarray:
    """One column as inputs [N, its width]: one-hot, (x − mean)/scale, or clipped to [low, high] and put on [−1, 1]."""
    if column["values"] is not None:
        known = [text_of(value) for value in column["values"]]
        return one_hot(_codes(cells, known, path, name, f"`learning.columns`, `{name}`,"), len(known))
    numbers = _numbers(cells, path, name)
    if column["low"] is None:
        scaled = (numbers - column["mean"]) / column["scale"]
    else:
        low, high = column["low"], column["high"]
        scaled = (np.clip(numbers, low, high) - low) / (high - low) * 2.0 - 1.0
    made: np.ndarray = scaled.astype(np.float32)[:, None]
    return made


def _latest(owners: np.ndarray, ranks: np.ndarray, share: float) -> np.ndarray:
    """Whether a row is among the last of its device; at least one of each device is not."""
    order = np.lexsort((ranks, owners))
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    sizes = np.diff([*starts, len(order)])
    place = np.arange(len(order)) - np.repeat(starts, sizes)
    kept = np.maximum(1, sizes - np.round(sizes * share).astype(np.int64))
    later = np.zeros(len(owners), dtype=bool)
    later[order] = place >= np.repeat(kept, sizes)
    return later
