"""Contracts of encoders, policies, decoders and whole schemes."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch

from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.imports import import_object
from airfl.privacy import BudgetError
from airfl.rounds.schedule import Schedule
from airfl.schemes import SCHEMES, Clip, Decoder, Encoded, Encoder, Mean, Policy, Public, Scheme, scheme_named
from airfl.simulate import Simulation, open_simulation
from airfl.testing.small import small_config, small_task
from airfl.transceiver.radio import Radio, open_radio

CLIP, DIM = 0.7, 40
#: Where sampling may earn credit, and where it may not: laws, whom combiners serve, accountants, blocks.
CREDIT: dict[str, list[dict[str, Any]]] = {
    "law": [
        {"system.sampling": "poisson", "system.participation": 0.5},
        {"system.participation": 0.5},
        {"system.participation": 0.5, "scheme.replacement": "binomial"},
    ],
    "columns": [{"scheme.combiner_columns": name} for name in ("all", "active")],
    "accountant": [{"privacy.accountant": name} for name in ("gaussian", "sampled")],
    "blocks": [{}, {"channel.coherence_hz": 5e6}],
}


def _claims(schedule: Schedule) -> list[float]:
    """Noise, gain bound and whether credit is claimed, of all rounds."""
    settings = [schedule.setting(t) for t in range(schedule.norm.shape[1])]
    return [
        float(value)
        for one in settings
        for value in (one.unknown_var[0], torch.maximum(one.gain_bound, one.loudest)[0], one.hides_participation[0])
    ]


def _resolved(part: Any) -> Any:
    """The object that a part names; classes are called."""
    found = import_object(part, "part") if isinstance(part, str) else part
    return found() if isinstance(found, type) else found


def _block(updates: torch.Tensor) -> UpdateBlock:
    count = len(updates)
    return UpdateBlock(torch.zeros(count, dtype=torch.int64), torch.arange(count), updates, torch.zeros(count))


def _public(places: int, trials: tuple[int, ...] = (0,)) -> Public:
    """A round that these devices are heard in as they are."""
    active = np.tile(np.arange(places), (len(trials), 1))
    gains = torch.ones(len(trials), places, 1, dtype=torch.complex128)
    return Public(5, trials, 0, active, gains, None, torch.ones(len(trials), dtype=torch.float64))


class EncoderContract:
    """What a device sends is finite, no longer than the encoder says, and its own business."""

    part: ClassVar[Any]

    def _encoder(self) -> Encoder:
        return _resolved(self.part)  # type: ignore[no-any-return]

    def _length(self) -> float:
        encoder = self._encoder()
        return encoder.length(encoder.unit(CLIP, DIM))

    def _encoded(self, updates: torch.Tensor, memory: torch.Tensor | None = None) -> Encoded:
        encoder = self._encoder()
        if encoder.remembers and memory is None:
            memory = torch.zeros_like(updates)
        encoded = encoder.encode_in(_block(updates), encoder.unit(CLIP, DIM), memory, _public(len(updates)))
        if encoder.remembers:
            assert encoded.memory is not None
            assert encoded.memory.shape == updates.shape
            assert torch.isfinite(encoded.memory).all()
        return encoded

    def _sent(self, updates: torch.Tensor) -> torch.Tensor:
        return self._encoded(updates).block.updates

    @staticmethod
    def _updates() -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        rows = torch.randn(12, DIM, generator=generator)
        return rows * torch.logspace(-30, 30, 12).unsqueeze(1)

    def test_what_is_sent_is_no_longer_than_stated(self) -> None:
        """‖sent‖ ≤ length, for updates of any size."""
        length = self._length()
        norms = torch.linalg.vector_norm(self._sent(self._updates()).double(), dim=1)
        assert float(norms.max()) <= length

    def test_nothing_that_is_not_finite_is_sent(self) -> None:
        """NaN and infinity of a device stay with it; only what makes no promise may pass them on."""
        if math.isinf(self._length()):
            return
        updates = self._updates()
        updates[0], updates[1, 3], updates[2, 5], updates[3] = math.nan, math.inf, -math.inf, 3e38
        sent = self._sent(updates)
        assert torch.isfinite(sent).all()
        assert float(torch.linalg.vector_norm(sent.double(), dim=1).max()) <= self._length()

    def test_a_device_is_on_its_own(self) -> None:
        """What one sends does not change with what others trained."""
        updates = self._updates()
        alone = torch.cat([self._sent(row.unsqueeze(0)) for row in updates])
        assert torch.equal(self._sent(updates), alone)

    def test_memory_makes_nothing_longer(self) -> None:
        """Whatever is remembered; nothing comes of nothing; a broken update changes no memory."""
        if not self._encoder().remembers:
            return
        updates, generator = self._updates(), torch.Generator().manual_seed(4)
        for size in (1e-30, 1.0, 1e30):
            memory = size * torch.randn(updates.shape, generator=generator)
            norms = torch.linalg.vector_norm(self._encoded(updates, memory).block.updates.double(), dim=1)
            assert float(norms.max()) <= self._length()
        nothing = self._encoded(torch.zeros_like(updates))
        assert nothing.memory is not None
        assert not nothing.block.updates.any()
        assert not nothing.memory.any()
        memory = 0.1 * torch.randn(updates.shape, generator=generator)
        kept = self._encoded(torch.full_like(updates, math.nan), memory)
        assert kept.memory is not None
        assert torch.equal(kept.memory, memory)

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
        together = decoder.decode_in(received.clone(), CLIP, 6.0, _public(6, (0, 1, 2, 3)))
        alone = torch.cat(
            [
                decoder.decode_in(row.unsqueeze(0).clone(), CLIP, 6.0, _public(6, (trial,)))
                for trial, row in enumerate(received)
            ]
        )
        assert together.shape == received.shape
        assert torch.isfinite(together).all()
        assert torch.equal(together, alone)
        assert torch.equal(together, decoder.decode_in(received.clone(), CLIP, 6.0, _public(6, (0, 1, 2, 3))))

    def test_linear_means_linear(self) -> None:
        """A decoder that calls itself linear returns the sum."""
        decoder: Decoder = _resolved(self.part)
        received = torch.randn(2, 30, generator=torch.Generator().manual_seed(2))
        if decoder.linear:
            assert torch.equal(decoder.decode_in(received.clone(), CLIP, 6.0, _public(6, (0, 1))), received)


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

    def test_credit_only_where_noise_ignores_who_takes_part(self) -> None:
        """Where a round claims sampling credit, its noise and gain bound are those of every other draw of devices."""
        for law, columns, accountant, blocks in product(*CREDIT.values()):
            changes = {**law, **columns, **accountant, **blocks}
            try:
                config = small_config({"system.trials": 1, "system.num_antennas": 6, **changes})
                task = small_task(config)
                radio = open_radio(config, task.trials)
                schedule = open_simulation(config, self._scheme(), task, radio).schedule
            except (InputError, BudgetError):
                continue  # what is refused claims nothing
            if not any(schedule.hides_participation):
                continue
            claimed = _claims(schedule)
            redrawn = Radio(replace(radio.link, participation_keys=(1,)))
            other = _claims(open_simulation(config, self._scheme(), task, redrawn).schedule)
            assert all(math.isclose(*pair, rel_tol=1e-9) for pair in zip(other, claimed, strict=True)), changes

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
