"""Saving a model the way every Hugging Face tool loads it, whole or not at all; loading one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging

from drv_env.errors import SettingError, boundary
from trainers.agent_file import write_agent


def save_model(
    folder: str | Path,
    model: PreTrainedModel,
    tokenizer: Tokenizer,
    chat_template: str,
    agent: Mapping[str, Any] | None = None,
) -> Path:
    """Write weights (safetensors), configuration, tokenizer and chat template.

    An earlier checkpoint of the same name is replaced only once the new one is complete.

    Args:
        folder: the checkpoint's.
        model: what was trained.
        tokenizer: the model's.
        chat_template: the Jinja text it was trained with.
        agent: how it plays, as :mod:`trainers.agent_file` says; None leaves that out.

    Raises:
        SettingError: for an ``agent`` that can't work.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    with _without_bars():
        model.save_pretrained(temporary)
    config = model.config
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=chat_template,
        eos_token=tokenizer.id_to_token(config.eos_token_id),
        pad_token=tokenizer.id_to_token(config.pad_token_id),
    ).save_pretrained(temporary)
    if agent is not None:
        write_agent(temporary, agent)
    replaced = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(replaced)
    temporary.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)
    return folder


def load_model(folder: str | Path, dtype: str = "auto") -> PreTrainedModel:
    """The model of a checkpoint, ready to be played; nothing is downloaded.

    Args:
        folder: as :func:`save_model` or ``save_pretrained`` writes it.
        dtype: of the weights in memory; ``auto`` is what they are stored as.

    Raises:
        SettingError: when there is none, or it can't be loaded.
    """
    if not (Path(folder) / "config.json").is_file():
        raise SettingError(f"there is no model in {folder}: it has no config.json")
    with boundary(SettingError, f"the model in {folder} can't be loaded"), _without_bars():
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        ).eval()


@contextmanager
def _without_bars() -> Iterator[None]:
    """Without Transformers' progress bars, which are no part of what we print."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
