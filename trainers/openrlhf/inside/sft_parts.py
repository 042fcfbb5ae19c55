"""What stands in the place of OpenRLHF's own parts of fine-tuning: data, and metrics.

Documents come as tokens with a mask (``drv data rows``), made as live episodes' transcripts
are; nothing is tokenised again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from openrlhf.trainer.sft_trainer import SFTTrainer
from torch.utils.data import Dataset

from replay.token_store import TokenStore
from trainers.openrlhf.inside.rotary import exact_rotary
from trainers.openrlhf.metrics import append_metrics
from trainers.openrlhf.run import read_run
from trainers.openrlhf.sft_flags import drawn_documents

Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Ids, attention mask and loss mask, each ``(1, length)``."""


class Documents:
    """The documents of a run, in the place of a data set; OpenRLHF selects from it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.numbers = drawn_documents(_fine_tuning())

    def __len__(self) -> int:
        return len(self.numbers)

    def select(self, numbers: range) -> Documents:
        """The first of them: OpenRLHF's own limit."""
        self.numbers = self.numbers[: len(numbers)]
        return self


class DocumentDataset(Dataset[Rows]):
    """Documents as OpenRLHF's fine-tuning takes them.

    Args:
        documents: which.
        tokenizer: for the id that pads.
        max_length: longer ones are cut at their end.
    """

    def __init__(
        self, documents: Documents, tokenizer: Any, max_length: int, *args: Any, **kwargs: Any
    ) -> None:
        self._store = TokenStore(_fine_tuning().rows)
        self._numbers = documents.numbers
        self._pad = int(tokenizer.pad_token_id)
        self._max_length = max_length

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Rows:
        document = self._store[int(self._numbers[index])]
        ids = np.array(document.ids[: self._max_length], np.int64)
        learnt = np.zeros(len(ids), np.float32)
        learnt[:-1] = document.mask[1 : len(ids)]  # entry i is of the id after it
        return (
            torch.from_numpy(ids)[None],
            torch.ones(1, len(ids), dtype=torch.long),
            torch.from_numpy(learnt)[None],
        )

    def collate_fn(self, rows: list[Rows]) -> Rows:
        """Rows padded on the right, each ``(rows, 1, longest)``."""
        longest = max(ids.shape[1] for ids, _, _ in rows)

        def padded(tensors: list[torch.Tensor], value: int) -> torch.Tensor:
            return torch.stack(
                [
                    torch.nn.functional.pad(each, (0, longest - each.shape[1]), value=value)
                    for each in tensors
                ]
            )

        return (
            padded([ids for ids, _, _ in rows], self._pad),
            padded([attended for _, attended, _ in rows], 0),
            padded([learnt for _, _, learnt in rows], 0),
        )


class RecordingSFTTrainer(SFTTrainer):  # type: ignore[misc]
    """Writes each step's figures by the names of the one-device trainer."""

    def __init__(self, model: Any, *args: Any, **kwargs: Any) -> None:
        exact_rotary(model.model.module)
        self._folder = read_run().out
        super().__init__(model, *args, **kwargs)

    def save_logs_and_checkpoints(
        self,
        args: Any,
        global_step: int,
        step_bar: Any,
        logs_dict: Any = None,
        client_states: Any = None,
    ) -> None:
        """Write a step's metrics, and a state where one is due."""
        logs = logs_dict or {}
        figures = {
            "loss": self.strategy.all_reduce(float(logs["loss_mean"])),
            "learning_rate": float(logs["lr"]),
            "grad_norm": float(logs["grad_norm"]),
        }
        if self.strategy.is_rank_0():
            append_metrics(self._folder, global_step, figures, "sft")
        super().save_logs_and_checkpoints(args, global_step, step_bar, logs, client_states)


def _fine_tuning() -> Any:
    return read_run().fine_tuning
