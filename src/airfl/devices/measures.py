"""What is measured of scores beside accuracy and loss: ranking, calibration, and how devices fare one by one."""

from __future__ import annotations

import math

import numpy as np
import torch

#: Bins of equal width for the calibration error.
BINS = 15
#: Samples of its own that a device must have for its accuracy to count as one.
LEAST_TESTED = 10


def auc(probabilities: torch.Tensor, labels: torch.Tensor) -> float:
    """Area under the ROC curve, P(a positive scores above a negative) + P(equal)/2, from ranks.

    With more than two classes it is the mean over those that occur, each against all others. NaN without a pair.

    Args:
        probabilities: [N, C]; labels: [N].
    """
    count = probabilities.shape[1]
    found = []
    for label in [1] if count == 2 else range(count):
        scores, positive = probabilities[:, label].double(), labels == label
        ones = int(positive.sum())
        if 0 < ones < len(labels):
            _, inverse, sizes = torch.unique(scores, return_inverse=True, return_counts=True)
            above = sizes.cumsum(0).double()
            ranks = (above - (sizes.double() - 1.0) / 2.0)[inverse]
            over = float(ranks[positive].sum()) - ones * (ones + 1) / 2.0
            found.append(over / (ones * (len(labels) - ones)))
    return float(np.mean(found)) if found else math.nan


def calibration_error(probabilities: torch.Tensor, labels: torch.Tensor) -> float:
    """Σ_b |B_b|/N · |accuracy(B_b) − confidence(B_b)| over bins b of the largest probability (Naeini et al. 2015)."""
    confidence, named = probabilities.double().max(dim=1)
    right = (named == labels).double()
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.float64, device=bins.device).index_add_(0, bins, right - confidence)
    return float(gaps.abs().sum()) / len(labels)


def by_device(right: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each device, how many samples were named right and how many it has, [n], [n].

    Args:
        right: [N], whether, in the order of the devices; offsets: [n + 1].
    """
    sums = np.concatenate([[0], np.cumsum(right)])
    return sums[offsets[1:]] - sums[offsets[:-1]], np.diff(offsets)


def spread(right: np.ndarray, offsets: np.ndarray) -> tuple[float, float, float]:
    """Accuracy over all samples; mean and 10th percentile of the accuracies of devices with enough of them."""
    hits, sizes = by_device(right, offsets)
    enough = sizes >= LEAST_TESTED
    if not enough.any():
        return float(hits.sum() / max(sizes.sum(), 1)) if sizes.sum() else math.nan, math.nan, math.nan
    rates = hits[enough] / sizes[enough]
    return float(hits.sum() / sizes.sum()), float(rates.mean()), float(np.quantile(rates, 0.1))
