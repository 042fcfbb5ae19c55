"""Our settings of fine-tuning as flags of OpenRLHF's command line; the documents of a run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drv_env.errors import SettingError
from replay.packing import draw
from replay.token_store import TokenStore
from trainers.openrlhf.flags import (
    Flags,
    given_flags,
    optimiser_flags,
    refuse_decided,
    refuse_precision,
    written,
)
from trainers.openrlhf.run import FineTuning, OpenRLHFRun

_DECIDED = {
    "model.model_name_or_path": "model",
    "ckpt.output_dir": "out",
    "ckpt.path": "out",
    "ckpt.load_enable": "resume",
    "ckpt.save_steps": "save_every",
    "logger.tensorboard_dir": "out",
    "data.dataset": "rows",
    "data.max_len": "max_length",
    "train.batch_size": "batch_size",
    "train.max_epochs": "epochs",
    "train.seed": "seed",
    "adam.lr": "learning_rate",
    "adam.betas": "betas",
    "adam.weight_decay": "weight_decay",
    "lr_scheduler": "schedule",
    "lr_warmup_ratio": "warmup_steps or warmup_share",
    "min_lr_ratio": "schedule",
    "max_norm": "max_grad_norm",
    "ds.zero_stage": "cluster.zero_stage",
    "ds.packing_samples": "packed",
}
_REFUSED = {
    "ds.param_dtype": "the trainer computes in bfloat16",
    "data.apply_chat_template": "documents are tokens already",
    "data.multiturn": "documents are tokens already",
}


def sft_arguments_of(run: OpenRLHFRun) -> list[str]:
    """The arguments of ``openrlhf.cli.train_sft``.

    Raises:
        SettingError: for what does not go together, or OpenRLHF can't do.
    """
    work = _work(run)
    config = work.config
    refuse_precision(config.precision)
    for name, value in (("batch_tokens", config.batch_tokens), ("eval_every", config.eval_every)):
        if value:
            raise SettingError(f"{name} is not in OpenRLHF; leave it out, or train on one device")
    if config.aggregation != "token_mean":
        raise SettingError(
            f"sft.aggregation {config.aggregation} is not in OpenRLHF, which averages over all "
            "tokens of a step; set it to token_mean, or train on one device"
        )
    refuse_decided(given_flags(run.cluster.flags), _DECIDED, _REFUSED)
    steps = len(drawn_documents(work)) // config.batch_size
    if not steps:
        raise SettingError(f"there are fewer documents than batch_size, {config.batch_size}")
    flags: Flags = {
        "model.model_name_or_path": run.model.resolve(),
        "ckpt.output_dir": run.final.resolve(),
        "ckpt.path": run.state.resolve(),
        "ckpt.load_enable": run.resume,
        "ckpt.save_steps": config.save_every or -1,
        "logger.tensorboard_dir": run.out.resolve() / "tensorboard",
        "data.dataset": work.rows.resolve(),
        "data.max_len": _longest(work),
        "train.batch_size": config.batch_size,
        "train.micro_batch_size": 1,
        "train.max_epochs": 1,  # all epochs' draws are one
        "train.seed": config.seed,
        **optimiser_flags(config, steps),
        "ds.zero_stage": run.cluster.zero_stage,
        "ds.packing_samples": config.packed,
        "model.gradient_checkpointing_enable": run.gradient_checkpointing,
    }
    return [*written(flags), *run.cluster.flags]


def drawn_documents(work: FineTuning) -> NDArray[np.int64]:
    """Numbers of the documents of all epochs, drawn by their weights, as many as are learnt."""
    weights = TokenStore(work.rows).weights
    config = work.config
    found = np.concatenate([draw(weights, config.seed, epoch) for epoch in range(config.epochs)])
    most = len(found) if config.max_steps is None else config.max_steps * config.batch_size
    return found[:most]


def _longest(work: FineTuning) -> int:
    if work.max_length is not None:
        return work.max_length
    return int(TokenStore(work.rows).lengths.max())


def _work(run: OpenRLHFRun) -> FineTuning:
    if run.fine_tuning is None:
        raise SettingError("this run is no fine_tuning")
    return run.fine_tuning
