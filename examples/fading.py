"""A fading law of your own: Nakagami-m, milder than Rayleigh for m > 1.

airfl run paper --set channel.fading=fading:nakagami     # with this file beside the configuration, or here
"""

import numpy as np

SHAPE = 3.0  # m


def nakagami(generator: np.random.Generator, devices: int, antennas: int) -> np.ndarray:
    """Unit-power coefficients [devices, antennas]; path loss is airfl's."""
    amplitude = np.sqrt(generator.gamma(SHAPE, 1.0 / SHAPE, (devices, antennas)))
    return amplitude * np.exp(2j * np.pi * generator.random((devices, antennas)))
