"""The model step: momentum, projection, running mean. Post-processing of what was received, so it costs no privacy."""

from __future__ import annotations

import torch

from airfl.air import Setting
from airfl.config import Config
from airfl.errors import InputError
from airfl.imports import calling, is_outside
from airfl.rounds.schedule import Schedule
from airfl.rounds.state import State
from airfl.schemes import Decoder


def decoded(decoder: Decoder, schedule: Schedule, setting: Setting, received: torch.Tensor) -> torch.Tensor:
    """What stands in for the sum; what a decoder from outside returns is checked."""
    public = schedule.public(setting)
    if not is_outside(decoder):
        return decoder.decode_in(received, schedule.clip_norm, schedule.normaliser, public)
    with calling(decoder, "decoder"):
        made = decoder.decode_in(received.clone(), schedule.clip_norm, schedule.normaliser, public)
        if made.shape != received.shape:
            name, shape = type(decoder).__name__, tuple(received.shape)
            raise InputError(f"decoder `{name}` must return a tensor of shape {shape}; got {tuple(made.shape)}")
    return made


def server_step(
    config: Config, state: State, estimate: torch.Tensor, factor: float, start: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """θ ← Π_D(θ − factor · u), u the estimate or its heavy ball; returns models, velocity and running mean.

    Args:
        factor: η_g η/K.
        start: θ⁰, the centre of the domain, [trials, d].
    """
    learning, t = config.learning, state.round
    velocity = average = None
    step = estimate
    if learning.server_momentum:
        step = velocity = estimate if state.velocity is None else learning.server_momentum * state.velocity + estimate
    models = _project(state.models - factor * step, start, learning.domain_diameter)
    if learning.model_average:  # an even mean of the first models, until the window is full
        kept = min(learning.model_average, t / (t + 1))
        average = models if state.average is None else kept * state.average + (1.0 - kept) * models
    return models, velocity, average


def _project(models: torch.Tensor, start: torch.Tensor, diameter: float | None) -> torch.Tensor:
    """Π_D: onto the ball of diameter D around θ⁰, when a diameter is configured."""
    if diameter is None:
        return models
    offset = (models - start).double()
    length = torch.linalg.vector_norm(offset, dim=1, keepdim=True)
    # A hair inside, so that the enforced diameter holds after rounding θ to float32 too.
    rounding = torch.finfo(torch.float32).eps * torch.linalg.vector_norm(start.double(), dim=1, keepdim=True)
    radius = 0.5 * diameter * (1.0 - 1e-6) - rounding
    return (start + offset * torch.clamp(radius / length, max=1.0)).to(models.dtype)


def check_diameter(diameter: float | None, start: torch.Tensor) -> None:
    """Refuse a domain that float32 cannot enforce around θ⁰, [trials, d]."""
    smallest = 1e-3 * float(torch.linalg.vector_norm(start.double(), dim=1).max())
    if diameter is not None and diameter < smallest:
        raise InputError(
            f"`learning.domain_diameter` = {diameter:g} is too small to be enforced in float32 around a model of norm "
            f"{1e3 * smallest:.3g}; give at least {smallest:.1g}"
        )
