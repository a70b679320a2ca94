"""One trial's question to the search for cover: what some norms and some cover spend, and what noise they cost.

The noise of the sum is v_t = q_t²σ²/2 + K_t a², and the power limit asks for q_t ≥ π_t κ_t with
κ_t² = 1 + d(a² + e² + k b²)/c². Where a run's rounds will differ from what is planned with (imperfect channels or
dropouts), draws of the same law that are not the run's own stand in, and some room is left. What is booked is what
happens.

A round of B blocks is B rows, one after the other, each with norm, combiner and channels of its own. A device may put
all its energy into one block, so of the rows of a round what counts is the most visible, per device, and the least
noise. Its cover is in every block, and is paid for like an update that is spread evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from airfl.channel import Link
from airfl.channel.blocks import Grid, Place, grid_of, place_of
from airfl.config import Config
from airfl.errors import InputError
from airfl.privacy import Observer, gaussian_mu, reach, smallest
from airfl.privacy.events import SEEING
from airfl.randomness import complex_normal, stream
from airfl.rounds.observed import AnySight, graph, leaks_of, observed, views_of_blocks
from airfl.rounds.promise import Promise
from airfl.transceiver import Cover, Sight, mask_degree, unknown_to_all
from airfl.transceiver.design import least_gain, received_gains
from airfl.transceiver.levels import levels_by_multiplier, raised

Kind = Literal["quadrature", "masks", "none", "circular", "zero-sum"]

#: Draws of dropouts and of errors of channel knowledge that a plan looks at: as many as it takes to have looked at so
#: many transmissions, at least and at most so many; and the room that it leaves beyond them.
LOOKED_AT, FEWEST, MOST, ROOM = 20_000, 2, 64, 0.05
#: Rounding between what is planned and what is booked.
ROUNDING = 1e-6
#: How well a level has to be known to be compared with others.
ROUGHLY = 1e-4
#: Devices that are followed through the search, of those that stand out at some level of cover.
FOLLOWED = 48
#: Numbers that may be held to look at all devices again.
HELD = 150_000_000
#: Numbers that rounds of several blocks may take to be looked at together.
STACKED = 300_000_000


@dataclass(frozen=True)
class CoverUsed:
    """What the devices of one trial hid in, for people.

    Attributes:
        own, quadrature, masks: variance per coordinate that a device sends of each, in units of c².
        power_db: power of update and cover over that of the update alone.
        price_db: noise of the sum over what a trusted base station takes.
    """

    own: float
    quadrature: float
    masks: float
    power_db: float
    price_db: float


@dataclass(frozen=True)
class Shield:
    """What was found for one trial.

    Attributes:
        used: the cover in plain numbers.
        norms: q_t, [T].
        noise: mean of v_t.
        trusted: the same that a trusted base station would take.
    """

    cover: Cover
    norms: torch.Tensor
    noise: float
    trusted: float
    used: CoverUsed

    @property
    def price_db(self) -> float:
        """How much more noise there is than with a trusted base station."""
        return self.used.price_db


@dataclass(frozen=True)
class Problem:
    """One trial.

    Attributes:
        minimum: π_t, [T]; of rounds that are B blocks π_tb, the blocks of a round one after the other, [TB].
        gain_bound: G_t, [T] or [TB]; 0 where nobody is to send.
        planned: who is to send, [T, K]; −1 where fewer are.
        combiner: directions w_t of norm 1, [T, m] or [TB, m].
        power: by how much the power limit is raised, to find out how much is missing.
        pairs: whether masks are zero-sum perturbations: between all pairs, in both parts of a symbol.
        share: own noise of every device in units of a², [n]; None: all add alike.
    """

    config: Config
    link: Link
    index: int
    promise: Promise
    minimum: torch.Tensor
    gain_bound: torch.Tensor
    planned: np.ndarray
    combiner: torch.Tensor
    dim: int
    power: float = 1.0
    pairs: bool = False
    share: torch.Tensor | None = None
    _kept: dict[tuple[int, int], dict[Observer, AnySight]] = field(default_factory=dict, repr=False)
    _followed: dict[Observer, np.ndarray] = field(default_factory=dict, repr=False)
    _starts: dict[tuple[str, Kind], float] = field(default_factory=dict, repr=False)

    @cached_property
    def seeing(self) -> tuple[Observer, ...]:
        """Observers of signals that are kept to the budget."""
        return tuple(observer for observer in self.promise.kept if observer in SEEING)

    @cached_property
    def grid(self) -> Grid:
        """How a round is cut."""
        return grid_of(self.config, self.dim)

    @cached_property
    def _rounds(self) -> int:
        return len(self.minimum) // self.grid.count

    def _by_round(self, rows: torch.Tensor) -> torch.Tensor:
        """Values [..., TB] as [..., T, B]."""
        return rows.reshape(*rows.shape[:-1], self._rounds, self.grid.count)

    @cached_property
    def worlds(self) -> int:
        """How many draws of what may happen are looked at."""
        enough = math.ceil(LOOKED_AT / max(1, self.planned.size))
        return min(MOST, max(FEWEST, enough)) if self._uncertain else 1

    @property
    def _uncertain(self) -> bool:
        return self.config.system.dropout > 0.0 or self.config.channel.estimation_error > 0.0

    @cached_property
    def target(self) -> float:
        """μ² that may be spent."""
        assert self.promise.epsilon is not None
        room = ROOM if self._uncertain else 0.0
        return gaussian_mu(self.promise.epsilon, self.promise.delta) ** 2 * (1.0 - room) * (1.0 - ROUNDING)

    @cached_property
    def clip_norm(self) -> float:
        """c, the longest that what a device sends can be."""
        return self.promise.template.clip_norm

    @cached_property
    def unit(self) -> float:
        """S² at gain 1."""
        return (reach(self.promise.neighbours) * self.clip_norm) ** 2

    @cached_property
    def senders(self) -> torch.Tensor:
        """How many are to send, [T] or [TB]."""
        return torch.from_numpy((self.planned >= 0).sum(axis=1)).double().repeat_interleave(self.grid.count)

    @cached_property
    def sending(self) -> torch.Tensor:
        """In each draw, how many send, [worlds, T] or [worlds, TB]."""
        return self._counted(len)

    @cached_property
    def unknown(self) -> torch.Tensor:
        """In each draw, own noise that someone who sees models does not know, in units of a², [worlds, …]."""
        honest, share = torch.from_numpy(~self.link.colluding[self.index]), torch.from_numpy(self._shares)

        def unknown(who: np.ndarray) -> float:
            there = torch.zeros(len(share), dtype=torch.bool)
            there[who] = True
            return float(unknown_to_all(share, honest & there))

        return self._counted(unknown)

    @cached_property
    def _shares(self) -> np.ndarray:
        """Own noise of every device in units of a², [n]."""
        found: np.ndarray = np.ones(self.config.system.num_devices) if self.share is None else self.share.numpy()
        return found

    @cached_property
    def adding(self) -> torch.Tensor:
        """Own noise of all who are to send in units of a², [T] or [TB]."""
        if self.share is None:
            return self.senders
        there = torch.from_numpy(self.planned >= 0)
        found: torch.Tensor = (self.share[np.maximum(self.planned, 0)] * there).sum(dim=1)
        return found

    @cached_property
    def reaches(self) -> torch.Tensor:
        """g/|wᴴh_i| of all who are to send, [T, K]: the norm that each of them asks for; 0 for places without."""
        factor = least_gain(self.clip_norm, self.grid.symbols, self.link.power_limit)
        found = torch.zeros(self.planned.shape, dtype=torch.float64)
        for t, row in enumerate(self.planned):
            known = torch.from_numpy(self.link.known(self.index, t)[row[row >= 0]])
            found[t, torch.from_numpy(row >= 0)] = factor / received_gains(self.combiner[t], known).abs()
        return found

    def _counted(self, count: Callable[[np.ndarray], float]) -> torch.Tensor:
        found = [[count(self._who(world, t)) for t in range(self._rounds)] for world in range(self.worlds)]
        return torch.tensor(found, dtype=torch.float64).repeat_interleave(self.grid.count, dim=1)

    @cached_property
    def degrees(self) -> torch.Tensor:
        """With how many others a device shares masks, [T] or [TB]."""
        if self.pairs:
            return (self.senders - 1.0).clamp(min=0.0)
        degree = self.config.scheme.mask_degree
        return torch.tensor([mask_degree(int(k), degree) for k in self.senders], dtype=torch.float64).clamp(min=0.0)

    def cover(self, kind: Kind, level: float, own: float) -> Cover:
        """Cover of a level, in units of c², and own noise."""
        amount = level * self.clip_norm**2
        if kind == "circular":
            found = Cover.of(own, own if self.grid.per_symbol == 1 else 0.0)
            return found if self.share is None else replace(found, share=self.share.unsqueeze(0))
        if kind in ("masks", "zero-sum"):
            part = amount / max(1.0, float(self.degrees.max()))
            return Cover.of(own, 0.0, 0.5 * part if self.pairs else part, circular=self.pairs)
        return Cover.of(own, amount if kind == "quadrature" else 0.0)

    def least_norms(self, cover: Cover) -> torch.Tensor:
        """π_t κ_t, [T] or [TB]."""
        if self.share is not None:
            power = float(cover.own + cover.quadrature) * self.share[np.maximum(self.planned, 0)]
            asked = self.reaches * (1.0 + self._sent * power / self.clip_norm**2).sqrt()
            return torch.maximum(asked.amax(dim=1), self.minimum * 1e-12) / math.sqrt(self.power)
        power = float(cover.own + cover.quadrature) + cover.mask_parts * float(cover.masks) * self.degrees
        return self.minimum * (1.0 + self._sent * power / self.clip_norm**2).sqrt() / math.sqrt(self.power)

    @property
    def _sent(self) -> int:
        """Coordinates that are sent: of an odd number the last symbol of two is full of cover too."""
        return self.grid.symbols * self.grid.per_symbol

    def spent(self, norms: torch.Tensor, cover: Cover) -> float:
        """μ² of whoever is told most, of those who are kept to the budget, followed devices only."""
        squared = norms.square()
        models = squared * (0.5 * self.link.noise_power) + float(cover.own) * self.unknown
        quietest = self._by_round(self.gain_bound.square() * (self.sending > 0) / models).amax(dim=-1)
        told = self.unit * float(quietest.sum(dim=1).max())
        for observer, stack in self._stacks.items():
            seen = stack.seen(squared.repeat(self.worlds), cover).square()
            seen = seen.reshape(self.worlds, self._rounds, self._views(observer), -1).amax(dim=2).sum(dim=1)
            told = max(told, self.unit * float(seen.max()) if seen.numel() else 0.0)
        return told

    def noise(self, norms: torch.Tensor, cover: Cover) -> float:
        """Mean of v_t, with what is expected to leak."""
        heard = self.adding * (1.0 - self.config.system.dropout)
        v = norms.square() * (0.5 * self.link.noise_power) + float(cover.own) * heard
        return float(v.mean()) + self._leak(cover)

    @cached_property
    def trusted(self) -> float:
        """Mean of v_t that a trusted base station would take."""
        floor = smallest(
            lambda f: self._models(self._at(f, Cover.of())), self.target, 1e-3 * self._floor_of_models, 1e-6
        )
        floor = 0.0 if self._models(self.least_norms(Cover.of())) <= self.target else floor
        return self.noise(self._at(floor, Cover.of()), Cover.of())

    def held_back(self, kind: Kind, level: float, tolerance: float = ROUGHLY) -> Shield | None:
        """No own noise: power is held back until the promise is kept; None where that never happens."""
        cover = self.cover(kind, level, 0.0)
        norms = self.least_norms(cover)
        if self.spent(norms, cover) > self.target:
            if not self.spent(1e9 * (norms + self._floor_of_models), cover) <= self.target:
                return None
            start = self._starts.get(("held", kind), self._floor_of_models)
            floor = smallest(lambda f: self.spent(self._at(f, cover), cover), self.target, start, tolerance)
            norms, self._starts["held", kind] = self._at(floor, cover), floor
        return self._shield(norms, cover)

    def with_own_noise(self, kind: Kind, level: float, tolerance: float = ROUGHLY) -> Shield | None:
        """Full power: devices add noise of their own until the promise is kept; None where that never happens."""

        def spent(own: float) -> float:
            cover = self.cover(kind, level, own)
            return self.spent(self.least_norms(cover), cover)

        own = 0.0
        if spent(0.0) > self.target:
            if not spent(1e12 * self.clip_norm**2) <= self.target:
                return None
            start = self.unit * self._rounds / (self.target * max(1.0, float(self.senders.mean())))
            own = smallest(spent, self.target, self._starts.get(("own", kind), start), tolerance)
            self._starts["own", kind] = own
        cover = self.cover(kind, level, own)
        return self._shield(self.least_norms(cover), cover)

    def at_noise(self, kind: Kind, level: float, noise: float) -> Shield | None:
        """Cover of a level, by either way, with so much noise in the sum; None where that does not keep the promise."""
        bare = self.cover(kind, level, 0.0)
        least = self.noise(self.least_norms(bare), bare)
        if least > noise:
            return None
        floor = smallest(lambda f: noise / self.noise(self._at(f, bare), bare), 1.0, self._floor_of_models, 1e-9)
        norms = self._at(floor, bare)
        if self.spent(norms, bare) <= self.target:
            return self._shield(norms, bare)
        # Full power: the noise of the sum is a straight line in own noise.
        unit = self.clip_norm**2
        more = self.cover(kind, level, unit)
        cover = self.cover(kind, level, unit * (noise - least) / (self.noise(self.least_norms(more), more) - least))
        norms = self.least_norms(cover)
        return self._shield(norms, cover) if self.spent(norms, cover) <= self.target else None

    def check(self, shield: Shield) -> bool:
        """Whether all devices keep to the budget; those that do not are followed from now on."""
        kept = True
        for observer, totals in self._totals(shield.norms, shield.cover).items():
            over = np.flatnonzero(self.unit * totals > self.target * (1.0 + 0.5 * ROUNDING))
            if len(over):
                kept = False
                self._followed[observer] = np.union1d(self._followed[observer], over)
        if not kept:
            self.__dict__.pop("_stacks", None)
        return kept

    def follow(self, kinds: Sequence[Kind]) -> None:
        """Find the devices that stand out at some level of cover."""
        self._check_size()
        norms = self._at(self._floor_of_models, Cover.of())
        covers = [Cover.of(own=1e-9 * self.clip_norm**2)]
        covers += [self.cover(kind, level, 1e-9 * self.clip_norm**2) for kind in kinds for level in (0.1, 10.0, 1e4)]
        for cover in covers:
            for observer, totals in self._totals(norms, cover).items():
                best = np.argsort(totals)[-FOLLOWED:]
                self._followed[observer] = np.union1d(self._followed.get(observer, best), best)

    @cached_property
    def _floor_of_models(self) -> float:
        return math.sqrt(2.0 * self.unit * self._rounds / (self.target * self.link.noise_power))

    def _at(self, floor: float, cover: Cover) -> torch.Tensor:
        # Least Σ q² for a given Σ G²/q², as in ``transceiver.allocation``; of blocks as in ``transceiver.levels``.
        least = self.least_norms(cover)
        if self.grid.count == 1:
            return torch.maximum(least, floor * self.gain_bound.sqrt())
        blocks = self._by_round(least)
        weights = self._by_round(self.gain_bound)[:, 0].square().clamp(min=1e-300)
        level = levels_by_multiplier(blocks, weights)(torch.tensor(floor, dtype=torch.float64) ** 4)
        return raised(blocks, level).flatten()

    def _models(self, norms: torch.Tensor) -> float:
        told = self.gain_bound.square() / (norms.square() * (0.5 * self.link.noise_power))
        return self.unit * float(self._by_round(told).amax(dim=-1).sum())

    def _shield(self, norms: torch.Tensor, cover: Cover) -> Shield:
        noise, squared = self.noise(norms, cover), self.clip_norm**2
        mean = float(self.adding.sum() / self.senders.sum().clamp(min=1.0))
        own, quadrature = mean * float(cover.own) / squared, mean * float(cover.quadrature) / squared
        masks = cover.mask_parts * float(cover.masks) * float(self.degrees.max()) / squared
        used = CoverUsed(
            own,
            quadrature,
            masks,
            10.0 * math.log10(1.0 + self._sent * (own + quadrature + masks)),
            10.0 * math.log10(noise / self.trusted),
        )
        return Shield(cover, norms, noise, self.trusted, used)

    def _leak(self, cover: Cover) -> float:
        """Variance of what reaches the sum of quadrature noise and masks, on average over rounds and draws."""
        if self.config.channel.estimation_error == 0.0 or cover.is_nothing():
            return 0.0
        quadrature, masks = self._leaks
        return float(cover.quadrature) * quadrature + float(cover.masks) * masks

    @cached_property
    def _leaks(self) -> tuple[float, float]:
        """The same for variances of 1."""
        found = []
        for world in range(self.worlds):
            for t in range(len(self.minimum)):
                _, known, true, edges = self._drawn(world, t)
                gains = received_gains(self.combiner[t], true) / received_gains(self.combiner[t], known)
                units = Cover.of(quadrature=1.0), Cover.of(masks=1.0, circular=self.pairs)
                found.append([float(torch.cat(leaks_of(gains, edges, one)).sum()) for one in units])
        quadrature, masks = np.mean(found, axis=0).tolist()
        return quadrature, masks

    def _totals(self, norms: torch.Tensor, cover: Cover) -> dict[Observer, np.ndarray]:
        """Σ_t r_it² of every device, the largest over what may happen, [n] for each observer."""
        size = self.config.system.num_devices
        found = {observer: np.zeros((self.worlds, size)) for observer in self.seeing}
        for world in range(self.worlds):
            for t in range(self._rounds):
                who = self._who(world, t)
                for observer, seen in self._seen_in(world, t, norms, cover).items():
                    found[observer][world, who] += seen
        return {observer: totals.max(axis=0) for observer, totals in found.items()}

    def _seen_in(self, world: int, t: int, norms: torch.Tensor, cover: Cover) -> dict[Observer, np.ndarray]:
        """r_it² of every device that sends in a round, in the block that shows it best."""
        found: dict[Observer, np.ndarray] = {}
        for row in range(t * self.grid.count, (t + 1) * self.grid.count):
            for observer, sight in self._sights(world, row).items():
                seen = sight.seen(norms[row].square(), cover).square().numpy()
                found[observer] = np.maximum(found.get(observer, seen), seen)
        return found

    @cached_property
    def _stacks(self) -> dict[Observer, AnySight]:
        """For each observer all rounds of all draws, one after another, with the devices that are followed."""
        stacks: dict[Observer, AnySight] = {}
        for observer in self.seeing:
            rounds = []
            for world in range(self.worlds):
                for row in range(0, len(self.minimum), self.grid.count // self._views(observer)):
                    place = np.full(self.config.system.num_devices, -1)
                    who = self._who(world, row // self.grid.count)
                    place[who] = np.arange(len(who))
                    columns = torch.from_numpy(place[self._followed[observer]])
                    rounds.append(self._sights(world, row)[observer].of(columns))
            stacks[observer] = type(rounds[0]).stacked(rounds)  # type: ignore[arg-type]
        return stacks

    def _views(self, observer: Observer) -> int:
        """In how many blocks of a round an observer's view differs."""
        return 1 if observer == "everything" else self.grid.count

    def _check_size(self) -> None:
        """Refuse more blocks than can be looked at together."""
        system, blocks, senders = self.config.system, self.grid.count, max(1, self.planned.shape[1])
        followed, held = min(system.num_devices, 4 * FOLLOWED), 0
        for observer in views_of_blocks(self.seeing):
            directions = 2 * min(system.num_antennas, senders)
            if observer == "eavesdropper" and self.config.eavesdropper is not None:
                directions = 2 * self.config.eavesdropper.antennas + self.grid.per_symbol
            held += self.worlds * len(self.minimum) * directions * (6 * directions + followed)
        if blocks > 1 and held > STACKED:
            raise InputError(
                f"{blocks:,} blocks in each of {self._rounds:,} rounds with {system.num_antennas:,} antennas take "
                f"{8e-9 * held:.1f} GB to look for what devices hide in, and at most {8e-9 * STACKED:.1f} GB are "
                "taken; take fewer blocks, rounds or antennas"
            )

    def _who(self, world: int, t: int) -> np.ndarray:
        planned: np.ndarray = self.planned[t][self.planned[t] >= 0]
        dropout = self.config.system.dropout
        if dropout == 0.0:
            return planned
        left: np.ndarray = np.asarray(planned)[self._foresight(world, t, 0).random(len(planned)) >= dropout]
        return left

    def _foresight(self, world: int, t: int, what: int) -> np.random.Generator:
        return stream(self.config.system.seed, "foresight", self.link.trials[self.index], t, world, what)

    def sights_in(self, row: int) -> Sight:
        """What the base station sees of one round, where those send who were to."""
        found = self._sights(0, row)["base-station"]
        assert isinstance(found, Sight)
        return found

    def _sights(self, world: int, row: int) -> dict[Observer, AnySight]:
        key = world, row
        if key in self._kept:
            return self._kept[key]
        who, known, true, edges = self._drawn(world, row)
        heard, (t, block) = (who, self.combiner[row], known, true, edges), divmod(row, self.grid.count)
        observers = self.seeing if block == 0 else views_of_blocks(self.seeing)
        place = self._place(block)
        share = None if self.share is None else self.share[who]
        sights = observed(
            self.link, self.index, t, *heard, observers, compact=True, place=place, circular=self.pairs, share=share
        )
        size = self.worlds * len(self.minimum) * 2 * self.config.system.num_antennas * max(1, self.planned.shape[1])
        if size <= HELD:
            self._kept[key] = sights
        return sights

    def _place(self, block: int) -> Place | None:
        return None if self.grid.count == 1 else place_of(block, self.grid, self.config.channel)

    def _drawn(self, world: int, row: int) -> tuple[np.ndarray, torch.Tensor, torch.Tensor, np.ndarray]:
        """Who sends in a round, their channels as they are known and as they are, and who shares masks."""
        t, block = divmod(row, self.grid.count)
        who, place = self._who(world, t), self._place(block)
        planned = self.planned[t][self.planned[t] >= 0]
        drawn = self.link.known(self.index, t) if place is None else self.link.law.draw_in(self.index, t, place)
        known = torch.from_numpy(drawn[who])
        true, tau = known, self.config.channel.estimation_error
        if tau > 0.0:
            error = torch.from_numpy(complex_normal(self._foresight(world, t, 1), tuple(known.shape)))
            spread = torch.from_numpy(self.link.law.amplitude[self.index][who]) * math.sqrt(tau)
            true = known + spread.unsqueeze(-1) * error
        return who, known, true, graph(self.link, self.index, t, planned, who, pairs=self.pairs)
