"""What a configuration needs at the very least, by multiplication alone, against the memory there is.

Only arrays that must lie side by side are counted, so nothing that fits is refused.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path

from airfl.catalogue import SITES
from airfl.config import Config
from airfl.errors import InputError
from airfl.traits import scheme_traits

#: A record and a ledger's event of one round, as Python objects.
ROUND_BYTES = 500
#: Rays of a device in the place of 3GPP that has the fewest.
FEWEST_RAYS = 200
#: Limits that a container sets, in bytes.
CGROUP_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Need:
    """Bytes that something takes, and the keys that make it large."""

    what: str
    amount: int
    keys: str


def needs_of(config: Config, trials: int, copies: int = 1) -> list[Need]:
    """Arrays that some trials of a configuration hold at once.

    Channels of one round [trials, n, m] and combiners [trials, T, m] are complex128; who is active, [trials, T, K],
    and the samples of local steps, [trials, K, steps, batch] with a batch of at least 1, are int64.

    Args:
        copies: configurations that are run together.
    """
    system, learning, channel = config.system, config.learning, config.channel
    in_air = [name for name in config.scheme.names if scheme_traits(name).over_air]
    rows, active = trials * system.rounds, fewest_active(config)
    steps = learning.local_steps or learning.local_epochs or 0
    records = copies * len(config.scheme.names) * rows * ROUND_BYTES
    found = [
        Need("records", records, "`system.rounds` or `system.trials`"),
        Need("who is active", 8 * rows * active, "`system.rounds` or `system.num_devices`"),
        Need("local steps", 8 * trials * active * steps, "`learning.local_steps` or `learning.local_epochs`"),
        Need("positions", 16 * trials * system.num_devices, "`system.num_devices` or `system.trials`"),
    ]
    if in_air:
        one_round = 16 * trials * system.num_devices * system.num_antennas
        combiners = copies * len(in_air) * 16 * rows * system.num_antennas
        found.append(Need("channels of a round", one_round, "`system.num_antennas` or `system.num_devices`"))
        found.append(Need("combiners", combiners, "`system.num_antennas` or `system.rounds`"))
    if channel.fading in (*SITES, "cdl"):
        rows = math.isqrt(system.num_antennas)
        each = 8 + 8 * (rows + -(-system.num_antennas // rows))
        rays = trials * system.num_devices * FEWEST_RAYS * each
        found.append(Need("rays", rays, "`system.num_devices` or `system.trials`"))
    if channel.shadowing_distance_m:
        found.append(Need("shadowing", 24 * system.num_devices**2, "`system.num_devices`"))
    if channel.antenna_correlation:
        found.append(Need("correlation", 8 * system.num_antennas**2, "`system.num_antennas`"))
    if channel.device_correlation:
        found.append(Need("correlation", 8 * system.num_devices**2, "`system.num_devices`"))
    return found


def memories_of(config: Config, trials: int, dim: int, schemes: int | None = None) -> Need:
    """What devices remember from round to round, before a round and after it, [schemes, trials, n, d] in float32.

    Args:
        dim: d.
        schemes: how many of them have devices that remember; default: those of the configuration that are known to.
    """
    if schemes is None:
        schemes = sum(scheme_traits(name).remembers for name in config.scheme.names)
    return Need(
        "what devices remember",
        2 * 4 * schemes * trials * config.system.num_devices * dim,
        "`system.num_devices` or `system.trials`, take a smaller `learning.model`, or a scheme without memory",
    )


def fewest_active(config: Config) -> int:
    """K, or what is surely reached of it where it varies or some stay silent."""
    active = config.system.num_active // 2 if config.system.varies else config.system.num_active
    return int(active * config.scheme.least_share)


def require_memory(needs: list[Need], subject: str = "this configuration") -> None:
    """Refuse what cannot fit, with the estimate."""
    total, there = sum(need.amount for need in needs), physical_bytes()
    if there is None or total <= there:
        return
    largest = max(needs, key=lambda need: need.amount)
    raise InputError(
        f"{subject} needs at least {size_text(total)} of memory, {size_text(largest.amount)} of it for "
        f"{largest.what}, and this machine has {size_text(there)}; lower {largest.keys}"
    )


def physical_bytes() -> int | None:
    """All memory that a process here may have, whoever uses it now; None where nobody says."""
    known = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in CGROUP_FILES:
        try:
            known.append(int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # `max`: no limit
            continue
    return min(known) if known else None


def size_text(amount: int) -> str:
    """Bytes as people write them."""
    for unit, size in (("GB", 10**9), ("TB", 10**12), ("PB", 10**15)):
        if amount < 1000 * size:
            return f"{amount / size:.3g} {unit}"
    return f"{amount / 10**15:.1e} PB"
