"""One round from its setting to its ledger event: promise, schedule, sending, booking, records.

In: configuration, scheme, radio, updates. Out: settings, events, rows. May import all but runs, report and cli.
"""

from airfl.rounds.booking import book, check_views, update_factor
from airfl.rounds.estimated import settled, spread_of
from airfl.rounds.hiding import CoverUsed
from airfl.rounds.lanes import Lane, met_by, shared_lanes
from airfl.rounds.promise import Promise, make_promise
from airfl.rounds.records import MEASURED, RoundRecord, Watch, record_round
from airfl.rounds.remembered import Memory, fetched
from airfl.rounds.schedule import Schedule
from airfl.rounds.sending import Sending
from airfl.rounds.server import check_diameter, decoded, server_step
from airfl.rounds.share import arrange
from airfl.rounds.state import State, Step, no_memory
from airfl.rounds.training import Crew, Gathered, Intervention, Member, Training, pass_on, train_here

__all__ = [
    "MEASURED",
    "CoverUsed",
    "Crew",
    "Gathered",
    "Intervention",
    "Lane",
    "Member",
    "Memory",
    "Promise",
    "RoundRecord",
    "Schedule",
    "Sending",
    "State",
    "Step",
    "Training",
    "Watch",
    "arrange",
    "book",
    "check_diameter",
    "check_views",
    "decoded",
    "fetched",
    "make_promise",
    "met_by",
    "no_memory",
    "pass_on",
    "record_round",
    "server_step",
    "settled",
    "shared_lanes",
    "spread_of",
    "train_here",
    "update_factor",
]
