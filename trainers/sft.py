"""Behaviour cloning: supervised fine-tuning on the agent's tokens of trajectories.

The loss is the negative log-likelihood of the masked tokens (DR-Venus, arXiv 2604.19859:
thought, call and answer; observations masked), averaged over all of them in the batch, or
over its rows, however the batch is cut into micro-batches.  It knows rows of tokens: no text,
no episodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from trainers.causal_model import CausalModel, evaluating
from trainers.log_probs import token_log_probs, token_nll
from trainers.model_setup import computing
from trainers.optimiser import clipped_step, make_optimiser, set_rate
from trainers.packed_attention import Documents, attending, pack_rows, refuse_unpackable
from trainers.rows import Row, pad_rows
from trainers.sft_batches import Batches, Rows, checked, micro_batches, parts
from trainers.sft_config import SFTConfig
from trainers.training_state import Keeper


@dataclass(frozen=True, slots=True)
class SFTStep:
    """What one step measured.

    Attributes:
        step: its number, from 1.
        steps: of the run.
        loss: nats a learnt token, averaged as the settings say, before the step's update.
        tokens: of the rows, padding not counted.
        seconds: of the step, without evaluation and saving.
        learning_rate: of its update.
        learnt: tokens that the loss is about.
        grad_norm: before clipping.
        held_out_loss: after the update; None where it was not asked for.
    """

    step: int
    steps: int
    loss: float
    tokens: int
    seconds: float
    learning_rate: float
    learnt: int = 0
    grad_norm: float = math.nan
    held_out_loss: float | None = None

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second, padding not counted."""
        return self.tokens / self.seconds


def train_sft(
    model: nn.Module,
    rows: Rows,
    config: SFTConfig,
    on_step: Callable[[SFTStep], None] = lambda step: None,
    *,
    weights: ArrayLike | None = None,
    held_out: Rows = (),
    state: str | Path | None = None,
) -> list[SFTStep]:
    """Train ``model`` in place on ``rows``.

    Args:
        model: a Transformers causal language model, or peft's around one; see
            :func:`trainers.model_setup.prepare_model`.
        rows: trajectories in tokens, or packed rows of them (each counts as one row); rows
            without a learnt token are refused.
        config: the settings.
        on_step: told of every step.
        weights: one a row: how often it comes in an epoch on average.  None is once.
        held_out: rows whose loss is measured; see ``config.eval_every``.
        state: a folder for the run's whole state, from which the same call goes on after
            the process was killed, or after Ctrl-C, which then lets a step finish, saves and
            raises KeyboardInterrupt.

    Returns:
        The measurements of the steps that this call took.

    Raises:
        SettingError: when there are no rows, a row has nothing to learn, the state in the
            folder is of another run, or the model can't be trained as it is to be.
    """
    batches = Batches(
        rows,
        epochs=config.epochs,
        batch_size=config.batch_size,
        batch_tokens=config.batch_tokens,
        seed=config.seed,
        weights=weights,
    )
    if len(held_out):
        checked(held_out)
    steps = min(len(batches), config.max_steps or len(batches))
    optimiser = make_optimiser(model, config)
    keeper = Keeper(state, model, optimiser, _settings(config, batches.digest))
    done: list[SFTStep] = []
    CausalModel(model)  # its log-probs can be computed, or it is refused
    if config.packed:
        refuse_unpackable(model)
    model.train()
    with keeper.guard() as interrupt:
        for number in range(keeper.start() + 1, steps + 1):
            started = time.perf_counter()
            rate = set_rate(optimiser, config, number, steps)
            batch = batches[number]
            learnt = sum(int(row.mask.sum()) for row in batch)
            loss = _accumulate(model, optimiser, batch, config)
            norm = clipped_step(optimiser, config, f"step {number}")
            figures = float(loss), float(norm)  # which waits for the device
            seconds = time.perf_counter() - started
            measured = SFTStep(
                step=number,
                steps=steps,
                loss=figures[0],
                tokens=sum(len(row) for row in batch),
                seconds=seconds,
                learning_rate=rate,
                learnt=learnt,
                grad_norm=figures[1],
                held_out_loss=_held_out(model, held_out, config, number, steps),
            )
            done.append(measured)
            try:
                on_step(measured)
            except KeyboardInterrupt:
                interrupt.asked = True
            over = interrupt.asked or number == steps
            if over or (config.save_every and number % config.save_every == 0):
                keeper.save(number)
            if interrupt.asked:
                raise KeyboardInterrupt
    model.eval()
    return done


def mean_nll(model: nn.Module, rows: Rows, config: SFTConfig) -> float:
    """Nats a learnt token over all of ``rows``; no gradient, no dropout.

    Args:
        model: as in :func:`train_sft`.
        rows: each with something to learn.
        config: says how passes are made.
    """
    _, learnt = checked(rows)
    total = int(learnt.sum())
    found = 0.0
    with evaluating(model):
        for start in range(0, len(rows), config.batch_size):
            chosen = range(start, min(start + config.batch_size, len(rows)))
            batch = [part for index in chosen for part in parts(rows[index])]
            for micro in micro_batches(batch, config.microbatch_tokens, config.packed):
                with _attention(model, config):
                    found += float(_nll(model, micro, total, config))
    return found


def _accumulate(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    batch: Sequence[Row],
    config: SFTConfig,
) -> Tensor:
    """Gradients of the batch's loss, which is returned, one micro-batch after another."""
    optimiser.zero_grad(set_to_none=True)
    counts = [int(row.mask.sum()) for row in batch]
    losses = []
    for micro in micro_batches(batch, config.microbatch_tokens, config.packed):
        with _attention(model, config):
            if config.aggregation == "token_mean":
                loss = _nll(model, micro, sum(counts), config)
            else:
                loss = _mean_of_means(model, micro, sum(count > 0 for count in counts), config)
            loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
    return torch.stack(losses).sum()


def _nll(model: nn.Module, rows: Sequence[Row], total: int, config: SFTConfig) -> Tensor:
    """The share of ``rows`` in the mean over ``total`` tokens."""
    device = next(model.parameters()).device
    with computing(device, config.precision):
        ids, mask, documents = _laid_out(rows, device, config)
        return token_nll(model, ids, mask, total, documents)


def _mean_of_means(model: nn.Module, rows: Sequence[Row], total: int, config: SFTConfig) -> Tensor:
    """The share of ``rows`` in the mean over ``total`` rows of the means over their tokens."""
    device = next(model.parameters()).device
    with computing(device, config.precision):
        ids, mask, documents = _laid_out(rows, device, config)
        log_probs, _ = token_log_probs(model, ids, mask, documents=documents)
    counts = torch.tensor([int(row.mask.sum()) for row in rows])
    weights = torch.repeat_interleave(1 / (total * counts), counts)
    return -(weights.to(device) * log_probs).sum()


def _laid_out(
    rows: Sequence[Row], device: torch.device, config: SFTConfig
) -> tuple[Tensor, Tensor, Documents | None]:
    """Ids and mask of one pass, and, packed, where its documents stand."""
    if config.packed:
        return pack_rows(rows, device)
    return *pad_rows(rows, device), None


def _attention(model: nn.Module, config: SFTConfig) -> AbstractContextManager[None]:
    return attending(model) if config.packed else nullcontext()


def _held_out(
    model: nn.Module, rows: Rows, config: SFTConfig, step: int, steps: int
) -> float | None:
    due = step == steps or (config.eval_every and step % config.eval_every == 0)
    return mean_nll(model, rows, config) if due and len(rows) else None


def _settings(config: SFTConfig, rows: str) -> dict[str, Any]:
    """What must be the same when a run is taken up."""
    told = asdict(config)
    for name in ("eval_every", "save_every"):
        del told[name]  # these may change between two lives of a run
    return {"trainer": "sft", **told, "rows": rows}


if __name__ == "__main__":  # the same as drv train sft
    import sys

    from trainers.cli import main

    sys.exit(main(["train", "sft", *sys.argv[1:]]))
