"""The contract of engines: the same updates as one device after another, in plain PyTorch."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from airfl.engines import Engine
from airfl.engines.engine import choose_engine
from airfl.engines.loop import LoopEngine
from airfl.imports import import_callable
from airfl.testing.small import small_config, small_task


class EngineContract:
    """An engine trains every replica once, as the loop does, and leaves the broadcast models alone."""

    part: ClassVar[Any]

    def test_updates_are_those_of_the_loop(self) -> None:
        """Every trial and device once; updates equal to rounding."""
        config = small_config()
        task = small_task(config)
        models = task.initial_models()
        batches = task.batches(0, torch.arange(6).repeat(2, 1).numpy())
        found: list[torch.Tensor] = []
        for engine in (LoopEngine(task.spec), self._engine(task.spec)):
            updates = torch.full((2, 6, task.spec.dim), torch.nan)
            before = models.clone()
            for block in engine.train(models, batches, task.inputs, task.labels, 0.1):
                assert torch.isnan(updates[block.trial, block.slot]).all()  # nobody twice
                updates[block.trial, block.slot] = block.updates
            assert torch.equal(models, before)
            found.append(updates)
        assert torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-5)

    def _engine(self, spec: Any) -> Engine:
        if isinstance(self.part, str) and ":" not in self.part:
            config = small_config({"engine.backend": self.part})
            return choose_engine(config, spec, torch.device("cpu"), torch.zeros(1, 5))
        made = import_callable(self.part, "engine")(spec) if isinstance(self.part, str) else self.part(spec)
        return made  # type: ignore[no-any-return]
