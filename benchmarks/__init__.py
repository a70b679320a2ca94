"""Speed and size, measured: ``python -m benchmarks.NAME``. Equality first, then time, as ratios within one run."""
