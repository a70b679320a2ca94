"""What the three parts of a scheme are asked: encoder at the devices, policy for power, decoder at the server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from airfl.config import Config
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.imports import is_outside
from airfl.privacy import Budget, Observer, Sampling
from airfl.schemes.public import Public
from airfl.schemes.transceivers import Scene, Transceiver
from airfl.traits import HIDDEN_AS, PARTS, USUAL, WITH_SCALARS, Axis, Traits

#: The least that an encoder may leave for rounding, and what of it shards may take: gains err by 1e-9 at most.
LEAST_ROOM, FOR_SHARDS = 1e-8, 0.9

CoverChoice = Literal["nothing", "circular", "each", "chosen", "zero-sum"]


@dataclass(frozen=True)
class Encoded:
    """What some devices send.

    Attributes:
        block: the updates as they are sent.
        norms: ‖Δ‖ before encoding, for the records, [B].
        memory: what each of them remembers from now on, [B, d]; None for an encoder without memory.
    """

    block: UpdateBlock
    norms: torch.Tensor
    memory: torch.Tensor | None = None


class Encoder(ABC):
    """What a device sends, given its update and its own memory, and how long that can be at most.

    A device is on its own: what it sends depends on no other device's update or memory. Whatever its update is, NaN and
    infinity included, what it sends is finite and no longer than ``length`` says.
    """

    #: What it works with; a part from outside may say more, or less.
    traits: ClassVar[Traits] = USUAL
    #: What devices hide in, as much as the promise takes: nothing, circular noise, the same with a
    #: power of its own for each, what ``scheme.cover`` says, or perturbations that add up to zero.
    cover: ClassVar[CoverChoice] = "nothing"
    #: Whether devices remember something from round to round, a vector [d] each, zero at first.
    remembers: ClassVar[bool] = False
    #: What an encoder leaves of ``length`` for rounding, as a share: shards may take ``FOR_SHARDS`` of that for their
    #: sums, and the rest is for gains. One from outside is held to it.
    room: ClassVar[float] = 1e-6

    def unit(self, clip_norm: float, dim: int) -> float:
        """What stands for c in all that follows, ``length`` and ``encode`` included; the configured one unless said."""
        return clip_norm

    def configured(self, config: Config) -> Encoder:
        """The same with what a configuration says about it."""
        return self

    @abstractmethod
    def length(self, clip_norm: float) -> float:
        """The longest that what a device sends can be; infinite where nothing bounds it."""

    @abstractmethod
    def encode(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None) -> Encoded:
        """What the devices of a block send, with their memories [B, d] if they have any."""

    def encode_in(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None, public: Public) -> Encoded:
        """The same with what everybody knows of the round, for encoders that look at it."""
        return self.encode(block, clip_norm, memory)


@dataclass(frozen=True)
class Outlook:
    """What a policy may look at when it chooses the combiner's norms.

    Attributes:
        minimum: π_t, the least norm that the power limit allows, [trials, T].
        weights: a_t of the budget Σ a_t/q_t² ≤ A, the squared gain bounds, [trials, T].
        budget: what the promise lets it spend; None without one.
        spent: ε of one trial whose rounds have norms q, [T], and gain bounds √a; for accountants that have no A.
        epsilon: the promised ε; None without one.
        law: count -> draws of π/√a from the fading law that are not the run's own, [trials, count].
        last_factors: B of P3 for each trial, where a domain is enforced and the accountant's bound uses it; else None.
        config: the run.
        trials: trial numbers, for keyed draws.
        blocks: π_tb/r_tb of rounds that are several blocks, [trials, T, B]; then ``minimum`` is the least of a round,
            and norms are levels that all blocks below are raised to. None: a round is one block.
        ratios: r_tb, the gain bounds of blocks over the round's, [trials, T, B]: noise is that of norms
            r_tb max(blocks, level).
        noise_share: β = d (σ² + I)/(2C²), what q² adds to the energy of the noise in the sum, in units of C².
    """

    minimum: torch.Tensor
    weights: torch.Tensor
    budget: Budget | None
    spent: Callable[[torch.Tensor, torch.Tensor], float]
    epsilon: float | None
    law: Callable[[int], torch.Tensor]
    last_factors: tuple[float, ...] | None
    config: Config
    trials: tuple[int, ...]
    blocks: torch.Tensor | None = None
    ratios: torch.Tensor | None = None
    noise_share: float = 0.0

    def require_budget(self) -> Budget:
        """The budget, or a clear word that there is none."""
        if self.budget is None:
            raise InputError("this scheme keeps a privacy budget; give `privacy.epsilon` or `privacy.epsilon_tilde`")
        return self.budget

    def at_floor(self, floor: float) -> torch.Tensor:
        """q_t = max(π_t, floor·√a_t)."""
        return torch.maximum(self.minimum, floor * self.weights.sqrt())


class Policy(ABC):
    """Power: how large the combiner's norm is in every round, and so how much noise there is."""

    #: What it works with; a part from outside may say more, or less.
    traits: ClassVar[Traits] = USUAL
    #: Whether there is a radio link at all.
    over_air: ClassVar[bool] = True

    @abstractmethod
    def norms(self, outlook: Outlook) -> torch.Tensor:
        """q_t ≥ π_t, [trials, T]."""

    def sampling(self, config: Config) -> Sampling | None:
        """The law by which the scheme draws its devices itself; None: as configured."""
        return None


class DesigningPolicy(Policy):
    """A policy that finds combiners and transmit scalars itself, and not only how large combiners are."""

    traits: ClassVar[Traits] = WITH_SCALARS

    def norms(self, outlook: Outlook) -> torch.Tensor:
        """Nobody asks: the norms are those of its combiners."""
        return outlook.minimum

    def ignores_participation(self, config: Config) -> bool:
        """Whether combiners would be the same whoever takes part, with gains of one at most: then sampling hides."""
        return False

    @abstractmethod
    def transceiver(self, scene: Scene) -> Transceiver:
        """Combiners and transmit scalars of all rounds; within the budget of the scene, if there is one."""


class Decoder(ABC):
    """What stands in for the sum of updates, given what was received: post-processing, so it costs no privacy."""

    #: What it works with; a part from outside may say more, or less.
    traits: ClassVar[Traits] = USUAL
    #: Whether that is the received sum itself.
    linear: ClassVar[bool] = False

    def configured(self, config: Config) -> Decoder:
        """The same with what a configuration says about it."""
        return self

    @abstractmethod
    def decode(self, received: torch.Tensor, clip_norm: float, senders: float) -> torch.Tensor:
        """The model moves against this times η_g η/K, [trials, d].

        Args:
            received: the sum plus noise, [trials, d].
            clip_norm: c.
            senders: K, how many send, or would on average.
        """

    def decode_in(self, received: torch.Tensor, clip_norm: float, senders: float, public: Public) -> torch.Tensor:
        """The same with what everybody knows of the round, for decoders that look at it."""
        return self.decode(received, clip_norm, senders)


@dataclass(frozen=True)
class Scheme:
    """A way to aggregate: three parts, and whom it makes a promise to.

    Attributes:
        promises_to: the observer that is kept to the privacy budget; None: nothing is promised.
        accountant: by whose arithmetic, where the scheme fixes it; else as configured.
    """

    name: str
    title: str
    sentence: str
    encoder: Encoder
    policy: Policy
    decoder: Decoder
    promises_to: Observer | None = None
    accountant: str | None = None

    @property
    def traits(self) -> Traits:
        """What its three parts work with together."""
        return _said(self.encoder) | _said(self.policy) | _said(self.decoder)

    @property
    def keeps_budget(self) -> bool:
        """Whether the scheme promises to stay within the privacy budget."""
        return self.promises_to is not None

    @property
    def observer(self) -> Observer:
        """Whom its ε is reported for."""
        return self.promises_to or "model"

    def observer_in(self, config: Config) -> Observer:
        """The same where a configuration has a say: schemes that choose their cover promise to whom it names."""
        asked = config.privacy.observer
        return self.observer if asked == "auto" or self.encoder.cover not in ("chosen", "zero-sum") else asked


def _said(part: Encoder | Policy | Decoder) -> Traits:
    """What a part says of itself: ours by the table, one from outside by its class, with what it hides devices in.

    No hidden state and no release counts on a part from outside, whatever it says or inherits.
    """
    if not is_outside(part):
        return PARTS.get(type(part).__name__, part.traits)
    said = replace(part.traits, works_with=part.traits.works_with - {Axis.CONVERGENT, Axis.STANDARDISED})
    hidden_as = HIDDEN_AS.get(part.cover) if isinstance(part, Encoder) else None
    return said if hidden_as is None else said | PARTS[hidden_as]
