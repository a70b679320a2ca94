"""Contracts of encoders, policies, decoders and whole schemes."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from airfl.devices import UpdateBlock
from airfl.imports import import_object
from airfl.schemes import SCHEMES, Clip, Decoder, Encoder, Mean, Policy, Scheme, scheme_named
from airfl.simulate import Simulation, open_simulation
from airfl.testing.small import small_config, small_task

CLIP = 0.7


def _resolved(part: Any) -> Any:
    """The object that a part names; classes are called."""
    found = import_object(part, "part") if isinstance(part, str) else part
    return found() if isinstance(found, type) else found


def _block(updates: torch.Tensor) -> UpdateBlock:
    count = len(updates)
    return UpdateBlock(torch.zeros(count, dtype=torch.int64), torch.arange(count), updates, torch.zeros(count))


class EncoderContract:
    """What a device sends is finite, no longer than the encoder says, and its own business."""

    part: ClassVar[Any]

    def _encoder(self) -> Encoder:
        return _resolved(self.part)  # type: ignore[no-any-return]

    def _sent(self, updates: torch.Tensor) -> torch.Tensor:
        encoder = self._encoder()
        memory = torch.zeros_like(updates) if encoder.remembers else None
        encoded = encoder.encode(_block(updates), CLIP, memory)
        if encoder.remembers:
            assert encoded.memory is not None
            assert encoded.memory.shape == updates.shape
            assert torch.isfinite(encoded.memory).all()
        return encoded.block.updates

    @staticmethod
    def _updates() -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        rows = torch.randn(12, 40, generator=generator)
        return rows * torch.logspace(-30, 30, 12).unsqueeze(1)

    def test_what_is_sent_is_no_longer_than_stated(self) -> None:
        """‖sent‖ ≤ length, for updates of any size."""
        length = self._encoder().length(CLIP)
        norms = torch.linalg.vector_norm(self._sent(self._updates()).double(), dim=1)
        assert float(norms.max()) <= length

    def test_nothing_that_is_not_finite_is_sent(self) -> None:
        """NaN and infinity of a device stay with it; only what makes no promise may pass them on."""
        if math.isinf(self._encoder().length(CLIP)):
            return
        updates = self._updates()
        updates[0], updates[1, 3], updates[2, 5], updates[3] = math.nan, math.inf, -math.inf, 3e38
        sent = self._sent(updates)
        assert torch.isfinite(sent).all()
        assert float(torch.linalg.vector_norm(sent.double(), dim=1).max()) <= self._encoder().length(CLIP)

    def test_a_device_is_on_its_own(self) -> None:
        """What one sends does not change with what others trained."""
        updates = self._updates()
        alone = torch.cat([self._sent(row.unsqueeze(0)) for row in updates])
        assert torch.equal(self._sent(updates), alone)

    def test_no_memory_makes_it_longer(self) -> None:
        """‖sent‖ ≤ length and finite memory, whatever is remembered; what is sent of nothing is nothing."""
        encoder = self._encoder()
        if not encoder.remembers:
            return
        updates = self._updates()
        for memory in (updates.flip(0), -updates, 1e30 * torch.ones_like(updates)):
            encoded = encoder.encode(_block(updates), CLIP, memory)
            norms = torch.linalg.vector_norm(encoded.block.updates.double(), dim=1)
            assert float(norms.max()) <= encoder.length(CLIP)
            assert encoded.memory is not None
            assert torch.isfinite(encoded.memory).all()
        nothing = torch.zeros_like(updates)
        encoded = encoder.encode(_block(nothing), CLIP, nothing.clone())
        assert torch.equal(encoded.block.updates, nothing)
        assert encoded.memory is not None
        assert torch.equal(encoded.memory, nothing)

    def test_a_broken_update_leaves_memory_as_it_was(self) -> None:
        """Training that met NaN or infinity is nothing to remember."""
        encoder = self._encoder()
        if not encoder.remembers:
            return
        updates, memory = self._updates(), 0.1 * self._updates().flip(0).clamp(-1, 1)
        updates[0], updates[1, 3], updates[2, 5] = math.nan, math.inf, -math.inf
        before = memory.clone()
        encoded = encoder.encode(_block(updates), CLIP, memory)
        assert encoded.memory is not None
        assert torch.equal(encoded.memory[:3], before[:3])
        assert torch.equal(encoded.block.updates[:3], torch.zeros_like(updates[:3]))
        assert torch.equal(memory, before)

    def test_updates_are_left_alone(self) -> None:
        """What comes in is not changed."""
        updates = self._updates()
        before = updates.clone()
        self._sent(updates)
        assert torch.equal(updates, before)


class DecoderContract:
    """What stands in for the sum has its shape, is finite, and follows from what was received."""

    part: ClassVar[Any]

    def test_trials_do_not_depend_on_each_other(self) -> None:
        """One by one as in a batch, finite, and the same twice."""
        decoder: Decoder = _resolved(self.part)
        received = torch.randn(4, 30, generator=torch.Generator().manual_seed(1))
        together = decoder.decode(received.clone(), CLIP, 6.0)
        alone = torch.cat([decoder.decode(row.unsqueeze(0).clone(), CLIP, 6.0) for row in received])
        assert together.shape == received.shape
        assert torch.isfinite(together).all()
        assert torch.equal(together, alone)
        assert torch.equal(together, decoder.decode(received.clone(), CLIP, 6.0))

    def test_linear_means_linear(self) -> None:
        """A decoder that calls itself linear returns the sum."""
        decoder: Decoder = _resolved(self.part)
        received = torch.randn(2, 30, generator=torch.Generator().manual_seed(2))
        if decoder.linear:
            assert torch.equal(decoder.decode(received.clone(), CLIP, 6.0), received)


class SchemeContract:
    """A scheme runs, books what it adds, and keeps what it promises."""

    part: ClassVar[Any]

    def _scheme(self) -> Scheme:
        return scheme_named(self.part) if isinstance(self.part, str) else self.part

    def _simulation(self) -> Simulation:
        config = small_config()
        return open_simulation(config, self._scheme(), small_task(config))

    def test_norms_are_within_the_power(self) -> None:
        """q_t ≥ π_t in every round."""
        schedule = self._simulation().schedule
        if schedule.over_air:
            assert bool((schedule.norm >= schedule.minimum * (1.0 - 1e-12)).all())

    def test_the_noise_booked_is_the_noise_added(self) -> None:
        """The ledger's v is the setting's, and the budget is kept at the end."""
        simulation = self._simulation()
        state = simulation.init()
        for _ in range(simulation.config.system.rounds):
            step = simulation.advance(state)
            state = step.after
            for row, ledger in enumerate(state.ledgers):
                assert ledger.events[-1].noise_var == float(step.setting.unknown_var[row])
                assert ledger.events[-1].clip_norm == simulation.scheme.encoder.length(simulation.schedule.clip_norm)
        assert torch.isfinite(simulation.release(state)).all()

    def test_a_run_follows_from_its_seed(self) -> None:
        """The same twice."""
        first, second = (list(self._simulation().rounds())[-1][0] for _ in range(2))
        assert torch.equal(first.models, second.models)


class PolicyContract(SchemeContract):
    """A norm policy, tested in a scheme that clips and, by default, promises to keep a budget.

    Attributes:
        promises: whether it is held to the budget.
    """

    promises: ClassVar[bool] = True

    def _scheme(self) -> Scheme:
        policy: Policy = _resolved(self.part)
        kept = SCHEMES["airfl-dp"].promises_to if self.promises else None
        return Scheme("contract", "Contract", "A policy under test.", Clip(), policy, Mean(), promises_to=kept)
