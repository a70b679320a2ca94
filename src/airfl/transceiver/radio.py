"""A link with the combiners for every round of every trial, before anyone has asked for privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from airfl.channel import Link, open_link
from airfl.channel.impairments import stretch_of
from airfl.config import Config
from airfl.randomness import stream
from airfl.transceiver.combiners import Combiner, combiner_named
from airfl.transceiver.combiners.annealed import annealed_for_most
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.design import Design, Status, received_gains
from airfl.transceiver.selection import SELECTIONS

#: Channel coefficients held at a time while the rounds are designed.
DESIGN_CHUNK = 4_000_000


CPU = torch.device("cpu")

#: Hears how many steps are done, of how many.
Heard = Callable[[int, int], None]

#: The designs, who transmits, and the gain bounds, [trials, T, ...].
Rounds = tuple[Design, np.ndarray, torch.Tensor]


@dataclass(frozen=True)
class Radio:
    """A link, and the combiners that were found for it: schemes of a run share them, and so do powers of a study.

    Attributes:
        found: rounds that were designed, by what they depend on.
        blocks: the same of rounds of several blocks (``wideband``).
        samples: the same of the few rounds that a choice of configuration looks at (``few_rounds``).
        device: where combiners are looked for; the designs themselves stay on the CPU.
        hears: is told how many blocks are designed, of how many.
    """

    link: Link
    found: dict[tuple[object, ...], Rounds] = field(default_factory=dict, repr=False, compare=False)
    device: torch.device = CPU
    samples: dict[tuple[object, ...], Rounds] = field(default_factory=dict, repr=False, compare=False)
    blocks: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False, compare=False)
    hears: Heard | None = field(default=None, repr=False, compare=False)

    def at(self, config: Config) -> Radio:
        """The same link and combiners for a configuration with another power."""
        return replace(self, link=replace(self.link, config=config))

    def rounds(self, config: Config, rounds: range) -> Rounds:
        """Design some rounds, once, whichever scheme asks first."""
        scheme = config.scheme
        key = (
            rounds, scheme.combiner, scheme.effort, scheme.combiner_columns, scheme.selection, scheme.share,
            scheme.phases,
        )  # fmt: skip
        if key not in self.found:
            self.found[key] = _join_chunks(config, self, rounds)
        return self.found[key]


def open_radio(config: Config, trials: Sequence[int], device: torch.device = CPU, hears: Heard | None = None) -> Radio:
    """The link of some trials, with no combiners yet."""
    return Radio(open_link(config, trials), device=device, hears=hears)


def _join_chunks(config: Config, radio: Radio, rounds: range) -> Rounds:
    """Design chunks of rounds, so that few channels are held at a time, and join them."""
    link = radio.link
    per_round = len(link.trials) * config.system.num_devices * config.system.num_antennas
    size = max(1, DESIGN_CHUNK // per_round)
    parts = [_design_chunk(config, radio, rounds[start : start + size]) for start in range(0, len(rounds), size)]
    designs = [part[0] for part in parts]
    joined = Design(
        torch.cat([design.combiner for design in designs], dim=1),
        torch.cat([design.norm for design in designs], dim=1),
        torch.cat([design.lower_bound for design in designs], dim=1),
        torch.cat([design.iterations for design in designs], dim=1),
        tuple(word for design in designs for word in design.status),
    )
    return joined, np.concatenate([part[1] for part in parts], axis=1), torch.cat([part[2] for part in parts], dim=1)


def _design_chunk(config: Config, radio: Radio, rounds: range) -> Rounds:
    system, scheme, link = config.system, config.scheme, radio.link
    known, active = link.estimates(rounds), link.active(rounds)
    if system.varies and scheme.combiner_columns == "active":
        return _design_ragged(config, radio, rounds, known, active)
    if scheme.selection == "aligned":
        design, chosen = annealed_for_most(
            served_channels(known, active).to(radio.device), config.num_transmitting, scheme.effort
        )
        design, active = design.cpu(), np.take_along_axis(active, chosen.cpu().numpy(), axis=2)
    else:
        if scheme.selection != "all":
            chosen = SELECTIONS[scheme.selection](served_channels(known, active), config.num_transmitting)
            active = np.take_along_axis(active, chosen.numpy(), axis=2)
        everyone = np.broadcast_to(np.arange(system.num_devices), (*active.shape[:2], system.num_devices))
        served = everyone if scheme.combiner_columns == "all" else active
        channels = served_channels(known, served)
        if scheme.combiner == "zero-forcing":
            design = zero_forcing(channels, _phases(config, link, rounds, served.shape[2]))
        else:
            design = combiner_for(config, radio)(channels)
    design.require_ok()
    return design, active, _gain_bound(config, link, design, served_channels(known, active), filled(active))


def combiner_for(config: Config, radio: Radio) -> Combiner:
    """The method that a configuration asks for, at work on the radio's device where it can be; designs on the CPU."""
    method = combiner_named(config.scheme.combiner, config.scheme.effort)
    if config.scheme.combiner != "auto":
        return method
    return lambda channels: method(channels.to(radio.device)).cpu()


def _design_ragged(config: Config, radio: Radio, rounds: range, known: np.ndarray, active: np.ndarray) -> Rounds:
    """Rounds with different numbers of active devices: those with the same number are designed together.

    For a round without any, a combiner for the first device stands in: something has to be received.
    """
    shape = active.shape[:2]
    counts = np.maximum((active >= 0).sum(axis=2), 1)
    combiner = torch.zeros(*shape, config.system.num_antennas, dtype=torch.complex128)
    norm = torch.zeros(shape, dtype=torch.float64)
    for count in np.unique(counts).tolist():
        where = np.nonzero(counts == count)
        served = np.maximum(active[where][:, :count], 0)
        channels = torch.from_numpy(np.take_along_axis(known[where], served[..., None], axis=1))
        if config.scheme.combiner == "zero-forcing":
            phases = _phases(config, radio.link, rounds, count)
            part = zero_forcing(channels, None if phases is None else phases[where])
        else:
            part = combiner_for(config, radio)(channels)
        part.require_ok()
        combiner[where], norm[where] = part.combiner, part.norm
    nothing = torch.zeros(shape, dtype=torch.float64)
    status: tuple[Status, ...] = tuple("ok" for _ in range(norm.numel()))
    design = Design(combiner, norm, nothing, nothing.to(torch.int64), status)
    # Places that are not taken are looked up as the row's first device, which is served: the bound is unchanged.
    return design, active, _gain_bound(config, radio.link, design, served_channels(known, active), filled(active))


def _gain_bound(config: Config, link: Link, design: Design, known: torch.Tensor, active: np.ndarray) -> torch.Tensor:
    """G_t that no |wᴴ h_i|/|wᴴ ĥ_i| exceeds, but for a chance of ``channel.csi_outage`` over a whole trial.

    Times what else on air can stretch a contribution (``channel.impairments``).
    Given ĥ_i, wᴴ(h_i − ĥ_i) is CN(0, τ Λ_i ‖w‖²), whose modulus exceeds √(τ Λ_i) ‖w‖ √log(N/p) with probability p/N;
    N = K·T events share the outage p. The bound does not change when w is scaled.
    """
    channel = config.channel
    stretch = stretch_of(channel)
    if channel.estimation_error == 0.0:
        return stretch * torch.ones_like(design.norm)
    events = active.shape[2] * config.system.rounds
    spread = torch.from_numpy(link.error_std(active)) * math.sqrt(math.log(events / channel.csi_outage))
    heard = received_gains(design.combiner, known).abs()
    return stretch * (1.0 + (spread * design.norm.unsqueeze(-1) / heard).amax(dim=-1))


def served_channels(channels: np.ndarray, served: np.ndarray) -> torch.Tensor:
    """Of channels [trials, rounds, n, m], those of the devices numbered in served [trials, rounds, K]."""
    return torch.from_numpy(np.take_along_axis(channels, filled(served)[..., None], axis=2))


def filled(active: np.ndarray) -> np.ndarray:
    """Places where nobody transmits, −1, looked up as the first device of their row, or of all."""
    first = np.maximum(active[..., :1], 0)
    return np.where(active < 0, first, active)


def _phases(config: Config, link: Link, rounds: Sequence[int], count: int) -> torch.Tensor | None:
    if config.scheme.phases == "ones":
        return None
    angles = [
        [stream(config.system.seed, "phases", trial, t).uniform(-np.pi, np.pi, count) for t in rounds]
        for trial in link.trials
    ]
    return torch.from_numpy(np.exp(1j * np.asarray(angles)))
