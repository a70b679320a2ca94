"""A whole scheme of your own, in two files: signs with a memory, the budget kept, and a vote at the server.

airfl run paper --scheme sign_scheme:scheme --set privacy.epsilon=50
"""

import torch
from sign_encoder import SignWithMemory

from airfl.schemes import Decoder, Scheme, WithinBudget


class Vote(Decoder):
    """The model moves by the sign of what was received, as far as if all had agreed."""

    def decode(self, received: torch.Tensor, clip_norm: float, senders: float) -> torch.Tensor:
        """K·c/√d times the majority's sign."""
        return senders * clip_norm / received.shape[1] ** 0.5 * torch.sign(received)


scheme = Scheme(
    "sign-vote",
    "Signs with memory, majority vote",
    "Devices send signs and remember what they left out; the server takes the vote.",
    *(SignWithMemory(), WithinBudget(), Vote()),
    promises_to="model",
)
