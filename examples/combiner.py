"""A combiner of your own in a study beside ours, with its figure: python examples/combiner.py [FIGURE]."""

import sys

import matplotlib.pyplot as plt

import airfl


def strongest(channels):
    """W along the channel of the device that is heard best, channels [..., K, m]; airfl scales it to reach all."""
    return channels.take_along_dim(channels.abs().square().sum(-1).argmax(-1)[..., None, None], dim=-2).squeeze(-2)


if __name__ == "__main__":
    small = {"system.num_devices": 12, "system.num_antennas": 16, "system.rounds": 10, "learning.dataset": "digits"}
    small |= {"learning.split": "standard", "learning.model": "softmax", "learning.local_steps": 5}
    small |= {"learning.learning_rate": 0.1, "learning.clip_norm": 1.0, "engine.eval_every": 10}
    axes = {"scheme.combiner": ["auto", "mrc", "combiner:strongest"], "channel.power_w": [1e-9, 1e-8, 1e-7, 1e-6, 1e-5]}
    rows = airfl.sweep({"base": "paper", "schemes": ["airfl-mimo"], "trials": 2, "set": small, "grid": axes})
    for name in axes["scheme.combiner"]:
        own = [(1e9 * row["channel.power_w"], row["accuracy_mean"]) for row in rows if row["scheme.combiner"] == name]
        plt.semilogx(*zip(*own, strict=True), "o-", label=name)
    plt.gca().set(xlabel="largest power of a device [nW]", ylabel="test accuracy")
    plt.legend(title="combiner").figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "combiner.png", dpi=150)
