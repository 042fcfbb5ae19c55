"""The settings of :mod:`trainers.model_setup`, apart from it: whoever reads them needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from drv_env.errors import SettingError
from drv_env.settings import above, at_least, between, check_fields

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRASettings:
    """Adapters instead of the whole weights.

    Attributes:
        rank: of the two matrices whose product is added to a weight.
        alpha: the product is multiplied by alpha / rank.
        dropout: of the adapters' inputs.
        targets: names of the layers that get adapters; ``all-linear`` is every linear layer
            but the head, which QLoRA (https://arxiv.org/abs/2305.14314, section 4) found
            necessary to match full fine-tuning.

    Raises:
        SettingError: naming a value that can't work.
    """

    rank: int = 32
    alpha: float = 32.0
    dropout: float = 0.0
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"

    def __post_init__(self) -> None:
        check_fields(self, rank=at_least(1), alpha=above(0), dropout=between(0, 1, most_open=True))
        if not self.targets:
            raise SettingError("targets names no layer", setting="targets")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How a model is trained; see :mod:`trainers.model_setup`.

    Attributes:
        precision: what matrices are multiplied in.
        gradient_checkpointing: less memory for a third more time.
        lora: adapters; None trains all weights.

    Raises:
        SettingError: for an unknown precision.
    """

    precision: Precision = "float32"
    gradient_checkpointing: bool = False
    lora: LoRASettings | None = None

    def __post_init__(self) -> None:
        check_fields(self)
