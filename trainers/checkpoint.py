"""Saving a model the way every Hugging Face tool loads it, whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging


def save_model(
    folder: str | Path, model: PreTrainedModel, tokenizer: Tokenizer, chat_template: str
) -> Path:
    """Write weights (safetensors), configuration, tokenizer and chat template.

    An earlier checkpoint of the same name is replaced only once the new one is complete.
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
    replaced = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(replaced)
    temporary.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)
    return folder


@contextmanager
def _without_bars() -> Iterator[None]:
    """Saving a small model is over before Transformers' progress bar is read."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
