"""Fixed features of inputs: scattering against brute force, and user code by import path."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import correlate2d

from airfl.config import preset
from airfl.devices import load_samples, scattering
from airfl.devices.features import make_features
from airfl.errors import InputError

CPU = torch.device("cpu")


def images(count, *size, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, (count, 1, *size))).float()


def wavelet(direction):
    """The Morlet wavelet of a direction, [7, 7], written out by its formula."""
    angle, values = math.pi * direction / 8, np.zeros((7, 7), complex)
    window = np.zeros((7, 7))
    for row in range(7):
        for column in range(7):
            x, y = column - 3, row - 3
            u, v = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
            window[row, column] = math.exp(-(u**2 + v**2 / 4) / (2 * 0.8**2))
            values[row, column] = window[row, column] * np.exp(0.75j * math.pi * u)
    return (values - window * values.sum() / window.sum()) / window.sum()


def strength(image, direction):
    padded, wave = np.pad(image, 3, mode="edge"), wavelet(direction)
    return abs(correlate2d(padded, wave.real, "valid") + 1j * correlate2d(padded, wave.imag, "valid"))


def halved(image):
    return image.reshape(image.shape[0] // 2, 2, image.shape[1] // 2, 2).mean(axis=(1, 3))


def smoothed(image, stride):
    """Means with Gaussian weights around the middle of every square, over the image continued far beyond its edges."""
    far, width = 3 * stride, 0.4 * stride
    padded = np.pad(image, far, mode="edge")
    rows, columns = (np.arange(-far, side + far) for side in image.shape)
    result = np.zeros((image.shape[0] // stride, image.shape[1] // stride))
    for i in range(result.shape[0]):
        for j in range(result.shape[1]):
            a, b = ((k + 0.5) * stride - 0.5 for k in (i, j))
            weights = np.exp(-((rows[:, None] - a) ** 2 + (columns - b) ** 2) / (2 * width**2))
            result[i, j] = (weights * padded).sum() / weights.sum()
    return result


def test_coefficients_are_what_the_formula_says():
    (image,) = images(1, 16, 24)[:, 0].numpy().astype(float)
    (found,) = scattering._coefficients(torch.from_numpy(image).float()[None, None]).numpy()
    assert found.shape == (81, 4, 6)
    expected = [smoothed(image, 4)]
    expected += [smoothed(strength(image, d), 4) for d in range(8)]
    expected += [smoothed(strength(halved(image), d), 2) for d in range(8)]
    expected += [smoothed(strength(halved(strength(image, a)), b), 2) for a in range(8) for b in range(8)]
    # Both leave out what is farther than two to three strides away.
    np.testing.assert_allclose(found, np.stack(expected), atol=2e-4)


def test_features_have_unit_power_and_edges_zero_mean():
    made = scattering.scattering(images(5, 28, 28))
    assert made.shape == (5, 81, 7, 7)
    assert made.square().mean(dim=(1, 2, 3)) == pytest.approx(np.ones(5), abs=1e-5)
    assert made[:, 1:].mean(dim=(1, 2, 3)) == pytest.approx(np.zeros(5), abs=1e-5)


@given(st.integers(0, 2**32 - 1), st.integers(8, 33), st.integers(8, 33))
def test_an_image_is_described_by_itself_alone(seed, height, width):
    """What makes the features free: another sample changes nothing."""
    some = images(3, height, width, seed=seed)
    together, alone = scattering.scattering(some), scattering.scattering(some[1:2])
    assert together.shape[2:] == (-(-height // 4), -(-width // 4))
    torch.testing.assert_close(together[1:2], alone, rtol=1e-4, atol=1e-4)
    others = torch.cat([100 * some[:1], some[1:2], torch.zeros_like(some[:1])])
    torch.testing.assert_close(scattering.scattering(others)[1:2], alone, rtol=1e-4, atol=1e-4)


def test_a_pattern_of_stripes_is_heard_in_its_direction():
    x = torch.arange(32.0)
    for direction, pattern in ((0, x.expand(32, 32)), (4, x.expand(32, 32).T)):
        stripes = torch.cos(0.75 * math.pi * pattern)[None, None]
        heard = scattering._coefficients(stripes)[0, 1:9].mean(dim=(1, 2))
        assert int(heard.argmax()) == direction


def test_turning_an_image_turns_the_directions():
    image = images(1, 16, 16)
    before, after = (scattering._coefficients(one)[0] for one in (image, image.rot90(dims=(2, 3))))
    turned = before.rot90(dims=(1, 2))
    torch.testing.assert_close(after[0], turned[0], rtol=1e-4, atol=1e-5)
    for first in (1, 9):  # eight directions of each scale
        torch.testing.assert_close(after[first : first + 8], turned[first : first + 8].roll(4, 0), rtol=1e-3, atol=1e-5)


def test_an_image_without_edges_has_finite_features():
    flat = torch.stack([torch.zeros(1, 28, 28), torch.ones(1, 28, 28)])
    made = scattering.scattering(flat)
    assert made.isfinite().all()
    assert made[1, 0].std() == pytest.approx(0.0, abs=1e-4)


def test_what_is_no_image_is_refused():
    for inputs in (torch.zeros(3, 20), torch.zeros(3, 1, 7, 28)):
        with pytest.raises(InputError, match="at least 8 × 8"):
            scattering.scattering(inputs)


def squares(inputs):
    return inputs.flatten(1).square()


def too_few(inputs):
    return inputs[1:]


def not_finite(inputs):
    return inputs / 0


def fails(inputs):
    raise ValueError("not today")


def centred(inputs):
    return inputs - inputs.mean(dim=0)


def nothing(inputs):
    return inputs[..., :0]


def in_place(inputs):
    return inputs.mul_(2.0)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 3)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))


network = Network()


def part(inputs):
    return inputs[..., 1:7, 1:7]


def test_features_by_import_path():
    inputs = images(4, 8, 8)
    torch.testing.assert_close(make_features("tests.test_features:squares", inputs), squares(inputs))
    assert make_features("none", inputs) is inputs
    before = inputs.clone()
    torch.testing.assert_close(make_features("tests.test_features:in_place", inputs), 2 * before)
    torch.testing.assert_close(inputs, before)
    assert not make_features("tests.test_features:network", inputs).requires_grad
    assert make_features("tests.test_features:part", inputs).is_contiguous()
    for name, words in (
        ("tests.test_features:too_few", "N = 4"),
        ("tests.test_features:not_finite", "NaN or infinity"),
        ("tests.test_features:fails", "not today"),
        ("tests.test_features:centred", "depend on other samples"),
        ("tests.test_features:nothing", "N = 4"),
        ("tests.test_features:absent", "cannot be imported"),
        ("wavelets", "known: none, scattering"),
    ):
        with pytest.raises(InputError, match=words):
            make_features(name, inputs)


def test_models_are_built_for_the_features(call):
    """Softmax regression on the features of 8 × 8 images learns."""
    config = preset("demo").replace({"learning.dataset": "digits", "learning.features": "scattering"})
    assert load_samples(config, CPU).inputs.shape == (1797, 81, 2, 2)
    code, out, error = call(
        *("run", "massive-scattering", "--scheme", "airfl-dp", "--json", "--out", "o", "--set", "privacy.epsilon=1000"),
        *("--set", "learning.dataset=digits", "--set", "system.num_devices=100", "--set", "system.rounds=20"),
        *("--set", "channel.power_w=0.0065"),
    )
    assert code == 0, error
    summary = json.loads(out.splitlines()[-1])
    assert summary["dim"] == 81 * 2 * 2 * 10 + 10
    assert summary["schemes"]["airfl-dp"]["accuracy_mean"] > 0.8
