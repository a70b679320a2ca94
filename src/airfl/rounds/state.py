"""Where a batch of trials stands, and one round that was run."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch

from airfl.air import Setting
from airfl.config import Config
from airfl.errors import DivergedError
from airfl.memory import memories_of, require_memory
from airfl.privacy import Ledger
from airfl.rounds.records import Watch
from airfl.rounds.remembered import Memory
from airfl.schemes import Scheme


def no_memory(config: Config, scheme: Scheme, trials: int, dim: int) -> torch.Tensor | None:
    """What devices remember before the first round, [trials, n, d]; None for an encoder without memory."""
    if not scheme.encoder.remembers:
        return None
    require_memory([memories_of(config, trials, dim, schemes=1)], f"scheme `{scheme.name}`")
    return torch.zeros(1, 1, 1).expand(trials, config.system.num_devices, dim)  # one number, wherever it is sent


@dataclass(frozen=True)
class State:
    """Where a batch of trials stands: all that is needed to go on from here.

    Attributes:
        memory: what devices remember from round to round, [trials, n, d]; None for an encoder without memory.
        spread: how far the updates of the last round spread, as a variance of their sum, [trials]; None where nobody
            asked.
    """

    round: int
    models: torch.Tensor
    ledgers: tuple[Ledger, ...]
    velocity: torch.Tensor | None = None
    average: torch.Tensor | None = None
    memory: Memory = None
    spread: torch.Tensor | None = None

    @property
    def released(self) -> torch.Tensor:
        """The models that are tested and handed on: the running mean, or the last ones."""
        return self.models if self.average is None else self.average


@dataclass(frozen=True)
class Step:
    """One round that was run: the state after it, what was seen of the updates, and its setting."""

    after: State
    watch: Watch
    setting: Setting

    def checked(self, scheme: Scheme) -> Step:
        """The step, unless it met NaN or infinity: then ``DivergedError``."""
        finite = bool(torch.isfinite(self.after.models).all())
        if not bool(torch.isfinite(self.watch.losses).all()):
            # Whether a run with a promise stops would tell of a single device. Over the air noise may be the reason,
            # which is a finding; what is sent is bounded and finite all the same.
            if scheme.keeps_budget or (scheme.policy.over_air and math.isfinite(scheme.encoder.length(1.0))):
                warnings.warn(
                    f"scheme `{scheme.name}`: local training met NaN or infinity on some devices, and what they "
                    "send counts as zero; look at `learning.learning_rate` and the noise that the link leaves",
                    RuntimeWarning,
                    stacklevel=3,
                )
            else:
                finite = False
        if not finite:
            raise DivergedError(
                f"training diverged: scheme `{scheme.name}` met NaN or infinity in round {self.after.round}; "
                "look at `learning.learning_rate`, `learning.server_step` and the noise that the link leaves",
                self.after,
            )
        return self
