"""One round of one trial as every observer of signals sees it: from who sends what to how visible each device is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from airfl.channel import Link
from airfl.channel.blocks import Place
from airfl.parallel import torch_threads
from airfl.privacy import Observer
from airfl.randomness import stream
from airfl.transceiver import (
    Cover,
    Sight,
    Transmission,
    bare_sight,
    base_station_sight,
    eavesdropper_sight,
    mask_edges,
)
from airfl.transceiver.design import received_gains
from airfl.transceiver.sight import BareSight

#: What an observer of signals sees of one round.
AnySight = Sight | BareSight


def signal_observers(link: Link) -> tuple[Observer, ...]:
    """Whom a link has to be looked at by."""
    return ("base-station", "everything") if link.listener is None else ("base-station", "eavesdropper", "everything")


def views_of_blocks(observers: Sequence[Observer]) -> tuple[Observer, ...]:
    """Those who see another thing in every block of a round: all but who hears every device by itself."""
    return tuple(name for name in observers if name != "everything")


def graph(
    link: Link, index: int, round_index: int, planned: np.ndarray, sends: np.ndarray, *, pairs: bool = False
) -> np.ndarray:
    """Who shares masks: places among the devices that send, [E, 2].

    The graph is drawn over all who were to send. Where one of them drops out, its partners disclose the masks that they
    share with it, and these leave the sum.

    Args:
        planned: numbers of the devices that were to send, [K].
        sends: numbers of those that do.
        pairs: whether every pair shares one.
    """
    config = link.config
    generator = stream(config.system.seed, "mask-graph", link.trials[index], round_index)
    edges = planned[mask_edges(generator, len(planned), len(planned) if pairs else config.scheme.mask_degree)]
    place = np.full(config.system.num_devices, -1)
    place[sends] = np.arange(len(sends))
    found: np.ndarray = place[edges]
    return found[(found >= 0).all(axis=1)]


def observed(
    link: Link,
    index: int,
    round_index: int,
    who: np.ndarray,
    combiner: torch.Tensor,
    known: torch.Tensor,
    true: torch.Tensor,
    edges: np.ndarray,
    observers: Sequence[Observer],
    *,
    compact: bool = False,
    place: Place | None = None,
    scaling: torch.Tensor | None = None,
    circular: bool = False,
    share: torch.Tensor | None = None,
) -> dict[Observer, AnySight]:
    """What observers see of one round, or of one block of it.

    Args:
        index: the trial's place.
        who: numbers of the devices that send, [K].
        combiner: w of norm 1, [m].
        known: ĥ_i of those devices, [K, m].
        true: h_i.
        edges: who shares masks.
        compact: leave out directions that no device reaches; the same numbers from smaller matrices.
        place: of the block; None: channels stand still for the round.
        scaling: s_i beside w of norm 1, [K]; default 1/(wᴴ ĥ_i).
        circular: whether masks are in both parts of a symbol.
        share: own noise of those devices in units of a², [K]; None: all add alike.
    """
    privacy, exact = link.config.privacy, link.config.channel.estimation_error == 0.0
    honest = ~link.colluding[index, who]
    unit_gains = exact and scaling is None
    scaling = 1.0 / received_gains(combiner, known) if scaling is None else scaling
    told = None if exact or privacy.credit_leak else combiner
    per_symbol = 1 if link.config.channel.symbols == "real" else 2
    found: dict[Observer, AnySight] = {}
    for observer in observers:
        if observer == "base-station":
            paths = true * scaling.unsqueeze(-1)
            if compact and len(who) < paths.shape[1]:
                basis = torch.linalg.qr(paths.mT)[0].conj()
                paths, told = paths @ basis, None if told is None else told @ basis
            found[observer] = base_station_sight(
                paths, link.credited_power, edges, honest, told, per_symbol, circular=circular, share=share
            )
        elif observer == "eavesdropper" and link.listener is not None:
            hers = torch.from_numpy(link.listener.draw(index, round_index, place)[who]) * scaling.unsqueeze(-1)
            found[observer] = eavesdropper_sight(
                hers,
                received_gains(combiner, true) * scaling,
                link.listener.noise_power,
                link.noise_power,
                edges,
                honest,
                exact=unit_gains,
                credit=privacy.credit_leak,
                per_symbol=per_symbol,
                circular=circular,
                share=share,
            )
        elif observer == "everything":
            found[observer] = bare_sight(len(who), edges, honest, share)
    return found


def seen_by_all(
    link: Link,
    round_index: int,
    active: np.ndarray,
    known: torch.Tensor,
    true: torch.Tensor,
    sent: Transmission,
    edges: tuple[np.ndarray, ...],
    cover: Cover,
    combiner: torch.Tensor,
    norm: torch.Tensor,
    place: Place | None = None,
    *,
    own: bool = False,
) -> dict[Observer, torch.Tensor]:
    """How visible each device is to each observer of signals, [trials, K], in a round or in one block of it.

    Of blocks beyond the first who hears every device by itself is left out: she sees no more there.

    Args:
        active: who sends, [trials, K]; −1 where fewer do.
        known: ĥ_i of those devices, [trials, K, m].
        true: h_i.
        sent: how they send.
        edges: who shares masks in each trial.
        combiner: w, [trials, m].
        norm: ‖w‖, [trials].
        own: whether devices scale otherwise than by 1/(wᴴ ĥ_i).
    """
    heard, honest = torch.from_numpy(active >= 0), torch.from_numpy(link.honest(active))
    # Without any cover the antennas see ‖h s‖ in white noise; anyone who sees every device by itself sees it all.
    seen: dict[Observer, torch.Tensor] = {
        "base-station": sent.received_norms * honest * math.sqrt(2.0 / link.credited_power),
        "everything": torch.where(honest, torch.inf, 0.0).double(),
    }
    bare = cover.is_nothing()
    observers = tuple(name for name in signal_observers(link) if not bare or name == "eavesdropper")
    if place is not None and place.key:
        observers = views_of_blocks(observers)
        del seen["everything"]
    for name in observers:
        seen[name] = torch.zeros(active.shape, dtype=torch.float64)
    for index in range(len(active)) if observers else ():
        here = heard[index]
        sights = observed(
            link,
            index,
            round_index,
            active[index][active[index] >= 0],
            combiner[index] / norm[index],
            known[index, here],
            true[index, here],
            edges[index],
            observers,
            place=place,
            scaling=sent.tx_scaling[index, here] * norm[index] if own else None,
            circular=cover.circular,
            share=None if cover.share is None else cover.share[index, active[index][active[index] >= 0]],
        )
        with torch_threads(1):  # the matrices are small, and sums do not depend on the number of threads then
            for name, sight in sights.items():
                seen[name][index, here] = sight.seen(norm[index].square(), cover[index])
    return seen


def leaks_of(gains: torch.Tensor, edges: np.ndarray, cover: Cover) -> tuple[torch.Tensor, torch.Tensor]:
    """Variance of what reaches the sum of each noise in quadrature, [K], and of each mask, [E], where gains are not 1.

    Args:
        gains: wᴴh_i s_i of the devices that send, [K].
    """
    apart = gains[torch.from_numpy(edges)]
    differ = apart[:, 0] - apart[:, 1]
    masks = differ.abs() if cover.circular else differ.real
    return cover.quadrature * gains.imag.square(), cover.masks * masks.square()
