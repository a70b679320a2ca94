"""A run in one call, from Python: with a bar where somebody looks on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

from airfl.config import Config
from airfl.errors import InputError
from airfl.imports import later
from airfl.runs.execute import Progress
from airfl.runs.execute import run as train
from airfl.runs.result import Result
from airfl.runs.signals import Interrupts
from airfl.runs.unfinished import Keeper
from airfl.shards import Shards

#: A bar, none, or one where somebody looks on: in a notebook or on a terminal.
Wish = bool | Literal["auto"] | None


def run(
    config: Config,
    *,
    progress: Progress | Wish = "auto",
    trials_per_batch: int | None = None,
    keeper: Keeper | None = None,
    interrupts: Interrupts | None = None,
    shards: Shards | None = None,
) -> Result:
    """Run every scheme of the configuration and return the result; only a keeper writes anything.

    Args:
        progress: True: a live bar; "auto": one in a notebook or on a terminal; or an object with the methods ``start``
            and ``round`` of ``airfl.Progress``, which hears about every round.
        trials_per_batch: how many trials are simulated together; default all. Changes memory and rounding only.
        keeper: who writes the run, as the command line has it; see ``runs.execute.run``.
        interrupts: what notices Ctrl-C, as the command line has it; see ``runs.execute.run``.
        shards: who trains the devices, ``airfl.shards.make_shards``; default this process.

    An interruption (Ctrl-C, or ``KeyboardInterrupt`` raised by ``progress``) or a divergence ends the run early: the
    result holds what was recorded, its status says so, and there is no model.
    """
    if not isinstance(config, Config):
        raise InputError(f"`airfl.run` takes a configuration, such as airfl.preset(...); got {type(config).__name__}")
    with shown_by("airfl.report.bars:run_bar", progress, config) as heard:
        return train(
            config,
            progress=heard,
            trials_per_batch=trials_per_batch,
            keeper=keeper,
            interrupts=interrupts,
            shards=shards,
        )


def shown_by(path: str, wish: Any, *arguments: Any) -> AbstractContextManager[Any]:
    """A bar by the path of its maker, or what was given in its place."""
    if wish is None or wish is False:
        return nullcontext()
    if wish is True or wish == "auto":
        made: AbstractContextManager[Any] = later(path)(*arguments, always=wish is True)
        return made
    if isinstance(wish, str):
        raise InputError(f'`progress` must be True, False, "auto" or an object that hears of rounds; got {wish!r}')
    return nullcontext(wish)
