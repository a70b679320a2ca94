"""Scattering: fixed wavelet features of images. Nothing in them is learnt, so privacy does not pay for them.

Edges at two scales and eight directions (first order), edges in the strength of the fine ones (second order), and the
image itself, all smoothed to a quarter of its size. A linear model on top does what a convolutional network has to
learn first [Oyallon and Mallat, "Deep roto-translation scattering", CVPR 2015; Tramèr and Boneh, "Differentially
private learning needs better features", ICLR 2021].
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F

from airfl.devices.precision import tf32_allowed
from airfl.errors import InputError

DIRECTIONS = 8
#: Width of a wavelet, in pixels, and half the width of its window. On an image of half the size it is twice as wide.
WIDTH, REACH = 0.8, 3
#: Features of one channel: the image, two scales of edges, edges of the fine ones' strength.
PER_CHANNEL = 1 + 2 * DIRECTIONS + DIRECTIONS**2
#: Images that are worked on at a time.
CHUNK = 500


def scattering(images: torch.Tensor) -> torch.Tensor:
    """Features [N, 81·channels, ⌈H/4⌉, ⌈W/4⌉] of images [N, channels, H, W].

    A channel of features is in units of its standard deviation on noise with the spectrum of natural images (1/f), and
    what describes edges has zero mean over an image. An image's features have a root mean square of one. All of this is
    about one image at a time: none depends on another, nor on the data set.
    """
    if images.ndim != 4 or min(images.shape[2:]) < 8:
        raise InputError(
            f"scattering is for images [N, channels, height, width] of at least 8 × 8; got {list(images.shape)}"
        )
    unit = _unit().to(images.device).view(-1, 1, 1)
    size = (-(-side // 4) for side in images.shape[2:])
    made = images.new_empty(len(images), PER_CHANNEL * images.shape[1], *size)
    with torch.no_grad(), tf32_allowed(False):  # in tf32 wavelets would lose their zero mean
        for some, out in zip(images.split(CHUNK), made.split(CHUNK), strict=True):
            found = _coefficients(some.reshape(-1, 1, *some.shape[2:])) / unit
            found[:, 1:] -= found[:, 1:].mean(dim=(1, 2, 3), keepdim=True)
            out.copy_(found.view_as(out))
            out /= out.square().mean(dim=(1, 2, 3), keepdim=True).sqrt().clamp(min=1e-6)
    return made


def _coefficients(images: torch.Tensor) -> torch.Tensor:
    """Scattering coefficients [N, 81, ⌈H/4⌉, ⌈W/4⌉] of images [N, 1, H, W]."""
    fine, coarse = _edges(images), _edges(_halved(images))
    again = _edges(_halved(fine).flatten(0, 1).unsqueeze(1))
    again = again.view(len(images), -1, *again.shape[2:])
    return torch.cat([_smoothed(images, 4), _smoothed(fine, 4), _smoothed(coarse, 2), _smoothed(again, 2)], dim=1)


def _halved(maps: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(maps, 2, ceil_mode=True)


def _edges(images: torch.Tensor) -> torch.Tensor:
    """|image ∗ wavelet| for every direction, [N, 8, H, W], of images [N, 1, H, W]."""
    padded = F.pad(images, (REACH,) * 4, mode="replicate")
    waves = F.conv2d(padded, _wavelets().to(images))
    return torch.hypot(waves[:, :DIRECTIONS], waves[:, DIRECTIONS:])


def _smoothed(maps: torch.Tensor, stride: int) -> torch.Tensor:
    """Gaussian means of maps [..., H, W] around the middle of every square of ``stride`` × ``stride``."""
    high, wide = (_means(side, stride).to(maps) for side in maps.shape[-2:])
    return high @ maps @ wide.T


@lru_cache
def _means(side: int, stride: int) -> torch.Tensor:
    """Weights [⌈side/stride⌉, side] of means with a width of 0.4 strides; a map goes on beyond its edge as it ends."""
    middles = (torch.arange(-(-side // stride)) + 0.5) * stride - 0.5
    places = torch.arange(-2 * stride, side + 3 * stride)
    weights = torch.exp(-((places - middles[:, None]) ** 2) / (2 * (0.4 * stride) ** 2))
    made = torch.zeros(len(middles), side).index_add_(1, places.clamp(0, side - 1), weights)
    return made / made.sum(dim=1, keepdim=True)


@lru_cache
def _wavelets() -> torch.Tensor:
    """Morlet wavelets, real parts and then imaginary parts, [16, 1, 7, 7]; each has zero mean."""
    along = torch.arange(-REACH, REACH + 1, dtype=torch.float64)
    y, x = torch.meshgrid(along, along, indexing="ij")
    waves = []
    for direction in range(DIRECTIONS):
        angle = math.pi * direction / DIRECTIONS
        across = math.cos(angle) * x + math.sin(angle) * y
        beside = -math.sin(angle) * x + math.cos(angle) * y
        window = torch.exp(-(across**2 + (0.5 * beside) ** 2) / (2 * WIDTH**2))
        wave = window * torch.exp(0.75j * math.pi * across)
        waves.append((wave - window * (wave.sum() / window.sum())) / window.sum())
    made = torch.stack(waves)
    return torch.cat([made.real, made.imag]).unsqueeze(1).float()


@lru_cache
def _unit() -> torch.Tensor:
    """Standard deviation of every coefficient on images of 1/f noise of unit variance, [81]."""
    generator = np.random.Generator(np.random.Philox(key=81))
    side = np.fft.fftfreq(64)
    frequency = np.hypot(side[:, None], side)
    frequency[0, 0] = 1.0
    noise = np.fft.ifft2(np.fft.fft2(generator.standard_normal((256, 64, 64))) / frequency).real[:, :32, :32]
    noise -= noise.mean(axis=(1, 2), keepdims=True)
    noise /= noise.std(axis=(1, 2), keepdims=True)
    found = _coefficients(torch.from_numpy(noise).float().unsqueeze(1))
    return found.std(dim=(0, 2, 3))
