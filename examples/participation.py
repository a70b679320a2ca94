"""A law of participation of your own: devices come in turns, a share of them each round.

airfl run paper --set system.sampling=participation:in_turns --set system.participation=0.5

Who takes part is then no secret, and airfl gives no credit for it.
"""

import numpy as np


def in_turns(generator: np.random.Generator, round_index: int, devices: int, participation: float) -> np.ndarray:
    """Numbers of the devices that take part in this round."""
    count = max(1, round(participation * devices))
    return (round_index * count + np.arange(count)) % devices
