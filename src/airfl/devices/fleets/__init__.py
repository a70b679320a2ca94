"""Data that comes in devices: a file per data set, any table with a device column, and what is measured on them.

In: source packages that pip brings, or a table. Out: a ``Dataset`` whose samples have owners.
"""

from airfl.devices.fleets import flights, insteval, shakespeare

#: Built-in data sets whose samples have owners, by name.
FLEETS = {"flights": flights.load, "insteval": insteval.load, "shakespeare": shakespeare.load}

__all__ = ["FLEETS", "flights", "insteval", "shakespeare"]
