"""Contracts of combiners, fading laws and laws of participation."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from airfl.channel.laws import LAWS, Law, outside_law
from airfl.config import Config
from airfl.imports import import_callable, is_import_path
from airfl.participation import participants
from airfl.testing.small import small_config
from airfl.transceiver import Combiner, combiner_named
from airfl.transceiver.combiners import outside
from airfl.transceiver.design import received_gains


class CombinerContract:
    """A combiner reaches every device that it serves, whatever else is in the batch."""

    part: ClassVar[Any]
    #: Devices and antennas that are tried.
    sizes: ClassVar[tuple[tuple[int, int], ...]] = ((1, 1), (1, 4), (3, 8), (6, 6), (20, 4), (40, 16))

    @classmethod
    def _method(cls) -> Combiner:
        part = cls.__dict__.get("part", cls.part)
        part = part.__func__ if isinstance(part, staticmethod) else part
        return combiner_named(part) if isinstance(part, str) else outside(part, getattr(part, "__name__", "combiner"))

    @staticmethod
    def _channels(lead: tuple[int, ...], devices: int, antennas: int) -> torch.Tensor:
        generator = np.random.Generator(np.random.Philox(key=devices * 1000 + antennas))
        shape = (*lead, devices, antennas)
        rows = generator.standard_normal(shape) + 1j * generator.standard_normal(shape)
        return torch.from_numpy(rows * 10.0 ** generator.uniform(-6, -3, (*lead, devices, 1)))

    def test_every_device_is_reached(self) -> None:
        """|wᴴ h_i| ≥ 1 for every device, to rounding."""
        for devices, antennas in self.sizes:
            channels = self._channels((2, 3), devices, antennas)
            design = self._method()(channels).require_ok()
            assert design.combiner.shape == (2, 3, antennas)
            assert float(received_gains(design.combiner, channels).abs().min()) >= 1.0 - 1e-9

    def test_norms_are_those_of_the_combiners(self) -> None:
        """‖w‖ as it is stated."""
        design = self._method()(self._channels((4,), 3, 8))
        assert torch.allclose(design.norm, torch.linalg.vector_norm(design.combiner, dim=-1), rtol=1e-9)

    def test_instances_do_not_depend_on_each_other(self) -> None:
        """One by one as in a batch."""
        channels = self._channels((4,), 5, 8)
        together = self._method()(channels).norm
        alone = torch.stack([self._method()(one.unsqueeze(0)).norm[0] for one in channels])
        assert torch.allclose(together, alone, rtol=1e-6)

    def test_channels_are_left_alone(self) -> None:
        """What comes in is not changed."""
        channels = self._channels((2,), 3, 8)
        before = channels.clone()
        self._method()(channels)
        assert torch.equal(channels, before)


class FadingContract:
    """A fading law draws by its keys alone, finite, of the right shape and of unit mean power before path loss."""

    part: ClassVar[Any]

    @classmethod
    def _open(cls, config: Config, trials: tuple[int, ...]) -> Law:
        part = cls.__dict__.get("part", cls.part)
        part = part.__func__ if isinstance(part, staticmethod) else part
        if isinstance(part, str) and not is_import_path(part):
            small = {"channel.fading": part, "channel.cell_radius_m": 100.0}  # a hall of 3GPP is no larger than 600 m
            return LAWS[part](config.replace(small), trials)
        found = import_callable(part, "fading law") if isinstance(part, str) else part
        return outside_law(found, str(part), config, trials)

    def test_shape_and_kind(self) -> None:
        """[devices, antennas], complex and finite."""
        law = self._open(small_config(), (0, 1))
        drawn = law.draw(1, 2)
        assert drawn.shape == (6, 4)
        assert np.iscomplexobj(drawn)
        assert np.isfinite(drawn).all()
        assert law.amplitude.shape == (2, 6)
        assert law.weakest_path_gain(0) > 0

    def test_draws_do_not_depend_on_batching(self) -> None:
        """Trial 1 alone as in a batch, and the same twice."""
        together, alone = self._open(small_config(), (0, 1)), self._open(small_config(), (1,))
        for t in (0, 2):
            assert np.array_equal(together.draw(1, t), alone.draw(0, t))
            assert np.array_equal(together.draw(1, t), together.draw(1, t))

    def test_rounds_and_trials_differ(self) -> None:
        """Keys are used."""
        law = self._open(small_config(), (0, 1))
        assert not np.array_equal(law.draw(0, 0), law.draw(0, 1))
        assert not np.array_equal(law.draw(0, 0), law.draw(1, 0))

    def test_mean_power_is_what_the_amplitude_says(self) -> None:
        """E|h|² = Λ, within a tenth over 2,000 rounds of 24 coefficients."""
        law = self._open(small_config(), (0,))
        power = np.mean([np.abs(law.draw(0, t) / law.amplitude[0][:, None]) ** 2 for t in range(2000)])
        assert abs(power - 1.0) < 0.1


class ParticipationContract:
    """A law of participation names devices that exist, by its keys alone."""

    part: ClassVar[str]

    def _drawn(self, key: int, t: int) -> np.ndarray:
        config = small_config({"system.participation": 0.5, "system.sampling": self.part})
        return participants(config, key, t)

    def test_devices_exist_and_come_once(self) -> None:
        """Numbers 0 to n − 1, sorted, filled up with −1."""
        for t in range(20):
            drawn = self._drawn(0, t)
            chosen = drawn[drawn >= 0]
            assert len(np.unique(chosen)) == len(chosen)
            assert ((chosen >= 0) & (chosen < 6)).all()

    def test_the_draw_follows_from_its_key(self) -> None:
        """The same twice."""
        assert np.array_equal(self._drawn(3, 1), self._drawn(3, 1))
