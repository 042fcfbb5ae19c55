"""Where a run on OpenRLHF takes place; plain values, and nothing heavy imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drv_env.errors import SettingError
from drv_env.settings import at_least, check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where it runs.

    Attributes:
        nodes: that the trained model is on.
        gpus: of each of them.
        engines: of vLLM.
        engine_gpus: of each engine (tensor parallel).
        colocate: trainer and engines share the same devices and take turns.
        zero_stage: how much DeepSpeed splits between the devices: 2 the optimiser, 3 the
            weights too.
        engine_arguments: further arguments of vLLM's engine, by its own names.
        ray: arguments of ``ray.init``: ``address`` of a cluster that runs already, say.
        flags: further flags for OpenRLHF's command line, as they are.
        check_syncs: how many of the first weight transfers are verified bit for bit: the
            model's weights are written into the run's folder, and every engine compares.
        score_tokens: tokens of one pass that scores information gain.

    Raises:
        SettingError: for a number that can't work.
    """

    nodes: int = 1
    gpus: int = 1
    engines: int = 1
    engine_gpus: int = 1
    colocate: bool = False
    zero_stage: int = 2
    engine_arguments: Mapping[str, Any] = field(default_factory=dict)
    ray: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    check_syncs: int = 1
    score_tokens: int = 8192

    def __post_init__(self) -> None:
        check_fields(
            self,
            nodes=at_least(1),
            gpus=at_least(1),
            engines=at_least(1),
            engine_gpus=at_least(1),
            check_syncs=at_least(0),
            score_tokens=at_least(1),
        )
        if self.zero_stage not in (0, 1, 2, 3):
            raise SettingError(
                f"zero_stage may be 0, 1, 2 or 3, got {self.zero_stage}", setting="zero_stage"
            )
