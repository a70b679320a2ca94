"""What models see of the inputs: themselves, or fixed features of them, by name or by import path."""

from __future__ import annotations

from collections.abc import Callable

import torch

from airfl.catalogue import no_such
from airfl.devices.scattering import scattering
from airfl.errors import InputError, about_file
from airfl.imports import import_callable, is_import_path

FEATURES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"none": lambda inputs: inputs, "scattering": scattering}


def make_features(name: str, inputs: torch.Tensor) -> torch.Tensor:
    """Features [N, ...] of inputs [N, ...], by name or by a callable given as ``package.module:callable``.

    A callable takes inputs of some samples, on the compute device, and returns as many features. Features of a sample
    must not depend on other samples: a mean over the data set is a release that nobody has paid for.
    """
    if name in FEATURES:
        return FEATURES[name](inputs)
    if not is_import_path(name):
        raise InputError(no_such("features", name, FEATURES, ", or package.module:callable"))
    make = import_callable(name, "features")
    try:
        with torch.no_grad():
            made, first = (torch.as_tensor(make(some.clone())) for some in (inputs, inputs[:2]))
            made, first = (some.to(inputs).contiguous() for some in (made, first))
    except InputError:
        raise
    except Exception as error:  # user code may fail in any way
        raise InputError(
            f"features `{name}` failed: {about_file(error)}; they are called with inputs [N, ...]"
        ) from error
    finite = bool(made.isfinite().all())
    if made.ndim < 2 or len(made) != len(inputs) or made.numel() == 0 or not finite:
        raise InputError(
            f"features `{name}` must return finite numbers [N, ...] for inputs [N, ...], N = {len(inputs):,}; "
            f"got {list(made.shape)}" + ("" if finite else " with NaN or infinity")
        )
    if first.shape != made[:2].shape or not torch.allclose(first, made[:2], rtol=1e-3, atol=1e-5):
        raise InputError(
            f"features `{name}` of a sample depend on other samples, or on chance; they must be a function of it alone"
        )
    return made
