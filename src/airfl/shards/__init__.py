"""One run's devices on several machines: who trains whom, and what comes back of it.

In: the training of a round. Out: sums over devices. May import ``simulate`` and all before it.
"""

from airfl.shards.cluster import Cluster
from airfl.shards.crew import HearsShards, Shards, make_shards
from airfl.shards.share import GROUPS, require_sums

__all__ = ["GROUPS", "Cluster", "HearsShards", "Shards", "make_shards", "require_sums"]
