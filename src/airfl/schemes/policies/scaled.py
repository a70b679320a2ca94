"""The least that is told while noise stays within a limit, online: `adascale`."""

from __future__ import annotations

import math
import warnings

import torch

from airfl.schemes.parts import Outlook, Policy
from airfl.schemes.policies.norms import foreseen
from airfl.transceiver.scaled import scale_online


class LeastTold(Policy):
    """Minimise Σ 1/q_t² with Σ q_t² ≤ B, knowing of the channels to come what ``scheme.online`` says.

    B is where the noise in the sum has the energy of ``scheme.sum_noise_db`` on average over rounds. No promise: the
    run ends with the ε that this leaves. Channels may break B whatever one does; a warning says by how much.
    """

    def norms(self, outlook: Outlook) -> torch.Tensor:
        """See ``Policy.norms``."""
        rounds, asked = outlook.minimum.shape[-1], outlook.config.scheme.sum_noise_db
        limit = rounds * 10.0 ** (asked / 10.0) / outlook.noise_share
        norms = scale_online(outlook.minimum, limit, foreseen(outlook, outlook.minimum))
        over = float(norms.square().sum(dim=-1).max()) / limit
        if over > 1.0 + 1e-9:
            warnings.warn(
                f"scheme `adascale`: the channels take noise of {asked + 10.0 * math.log10(over):.2f} dB on average, "
                f"above `scheme.sum_noise_db` = {asked:g}; nothing could be done about those that came last",
                RuntimeWarning,
                stacklevel=2,
            )
        return norms
