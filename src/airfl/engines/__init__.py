"""Local training behind one small protocol: a readable loop, and fast ones with the same meaning.

In: broadcast models and sample numbers. Out: blocks of updates. May import ``devices`` and all before it.
"""

from airfl.engines.engine import Engine, choose_engine, precision_of

__all__ = ["Engine", "choose_engine", "precision_of"]
