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
        key = (rounds, *asked_of(config))
        if key not in self.found:
            self.found[key] = _join_chunks(config, self, rounds)
        return self.found[key]


def asked_of(config: Config) -> tuple[object, ...]:
    """What designs depend on beside their channels."""
    scheme = config.scheme
    return (
        scheme.combiner, scheme.effort, scheme.combiner_columns, scheme.selection, scheme.share, scheme.phases,
    )  # fmt: skip


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
            candidates = served_channels(known, active)
            chosen = SELECTIONS[scheme.selection](lambda: [candidates], config.num_transmitting)
            active = np.take_along_axis(active, chosen.numpy(), axis=2)
        served = served_by(config, active)
        design = designed(config, radio, served_channels(known, served), [(t,) for t in rounds])
    design.require_ok()
    return design, active, gain_bound(config, link, design, served_channels(known, active), filled(active))


def served_by(config: Config, active: np.ndarray) -> np.ndarray:
    """Whom combiners serve: who is active, [trials, ..., K], or all n."""
    if config.scheme.combiner_columns == "active":
        return active
    count = config.system.num_devices
    return np.broadcast_to(np.arange(count), (*active.shape[:-1], count))


def designed(
    config: Config,
    radio: Radio,
    channels: torch.Tensor,
    keys: Sequence[tuple[int, ...]],
    where: tuple[np.ndarray, ...] | None = None,
) -> Design:
    """Combiners of some rounds or blocks for channels [trials, rounds, K, m].

    Args:
        keys: what draws of each round are keyed with beside the trial.
        where: the trials and rounds that channels [N, K, m] are of, where not all of them.
    """
    if config.scheme.combiner != "zero-forcing":
        return combiner_for(config, radio)(channels)
    phases = _phases(config, radio.link, keys, channels.shape[-2])
    return zero_forcing(channels, phases if phases is None or where is None else phases[where])


def combiner_for(config: Config, radio: Radio) -> Combiner:
    """The method that a configuration asks for, at work on the radio's device where it can be; designs on the CPU."""
    method = combiner_named(config.scheme.combiner, config.scheme.effort)
    if config.scheme.combiner != "auto":
        return method
    return lambda channels: method(channels.to(radio.device)).cpu()


def _design_ragged(config: Config, radio: Radio, rounds: range, known: np.ndarray, active: np.ndarray) -> Rounds:
    """Rounds with different numbers of active devices."""
    channels = served_channels(known, active)
    design = designed_by_count(config, radio, channels, (active >= 0).sum(axis=2), [(t,) for t in rounds])
    # Places that are not taken are looked up as the row's first device, which is served: the bound is unchanged.
    return design, active, gain_bound(config, radio.link, design, channels, filled(active))


def designed_by_count(
    config: Config, radio: Radio, channels: torch.Tensor, counts: np.ndarray, keys: Sequence[tuple[int, ...]]
) -> Design:
    """Combiners for the first ``counts`` [trials, rounds] of channels [trials, rounds, K, m].

    Rows with the same number of devices are designed together. For a row without any, a combiner for the first device
    stands in: something has to be received.
    """
    shape, counts = counts.shape, np.maximum(counts, 1)
    combiner = torch.zeros(*shape, channels.shape[-1], dtype=torch.complex128)
    norm = torch.zeros(shape, dtype=torch.float64)
    for count in np.unique(counts).tolist():
        where = np.nonzero(counts == count)
        part = designed(config, radio, channels[where][:, :count], keys, where)
        part.require_ok()
        combiner[where], norm[where] = part.combiner, part.norm
    nothing = torch.zeros_like(norm)
    status: tuple[Status, ...] = tuple("ok" for _ in range(norm.numel()))
    return Design(combiner, norm, nothing, nothing.to(torch.int64), status)


def gain_bound(
    config: Config, link: Link, design: Design, known: torch.Tensor, active: np.ndarray, blocks: int = 1
) -> torch.Tensor:
    """G_tb that no |wᴴ h_i|/|wᴴ ĥ_i| exceeds, but for a chance of ``channel.csi_outage`` over a whole trial.

    Times what else on air can stretch a contribution (``channel.impairments``).
    Given all estimates, wᴴ(h_i − ĥ_i) is CN(0, τ Λ_i ‖w‖²) in every block (``Law.error_in``), whose modulus exceeds
    √(τ Λ_i) ‖w‖ √log(N/p) with probability p/N; N = K·T·B events, dependent or not, share the outage p. The bound does
    not change when w is scaled.

    Args:
        design: of rounds, or of their blocks, [trials, N].
        known: ĥ of who is active there, [trials, N, K, m].
        blocks: B.
    """
    channel = config.channel
    stretch = stretch_of(channel)
    if channel.estimation_error == 0.0:
        return stretch * torch.ones_like(design.norm)
    events = active.shape[2] * config.system.rounds * blocks
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


def _phases(config: Config, link: Link, keys: Sequence[tuple[int, ...]], count: int) -> torch.Tensor | None:
    if config.scheme.phases == "ones":
        return None
    angles = [
        [stream(config.system.seed, "phases", trial, *key).uniform(-np.pi, np.pi, count) for key in keys]
        for trial in link.trials
    ]
    return torch.from_numpy(np.exp(1j * np.asarray(angles)))
