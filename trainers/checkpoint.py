"""Saving a model the way every Hugging Face tool loads it, whole or not at all; loading one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from agents.engines.checkpoint_check import load_checked, quiet_transformers
from trainers.agent_file import write_agent
from trainers.written_folder import replacing_folder


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
        SettingError: for an ``agent`` that can't work, and a folder that we did not write.
        DiskError: when the disk is full; what was there stays.
    """
    with replacing_folder(Path(folder)) as temporary:
        with quiet_transformers():
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
    return Path(folder)


_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)


def save_tuned(
    folder: str | Path,
    model: PreTrainedModel,
    base: str | Path,
    chat_template: str | None = None,
    agent: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model that was trained from another, whose tokenizer it has.

    Its weights are rounded to what the base's are stored in.

    Args:
        folder: the checkpoint's; replaced only once the new one is complete.
        model: what was trained, without adapters (:func:`trainers.model_setup.merged`).
        base: the folder that it came from.
        chat_template: the Jinja text it was trained with; None is the base's.
        agent: how it plays, as :mod:`trainers.agent_file` says; None leaves that out.

    Raises:
        SettingError: for an ``agent`` that can't work, and a folder that we did not write.
        DiskError: when the disk is full; what was there stays.
    """
    stored = json.loads((Path(base) / "config.json").read_text(encoding="utf-8"))
    name = stored.get("dtype") or stored.get("torch_dtype") or "float32"
    with replacing_folder(Path(folder)) as temporary:
        with quiet_transformers():
            model.save_pretrained(temporary, state_dict=_rounded(model, getattr(torch, name)))
        written = temporary / "config.json"
        config = json.loads(written.read_text(encoding="utf-8"))
        written.write_text(json.dumps({**config, "dtype": name}, indent=2) + "\n")
        for file in _TOKENIZER_FILES:
            if (Path(base) / file).is_file():
                shutil.copyfile(Path(base) / file, temporary / file)
        if chat_template is not None:
            (temporary / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
        if agent is not None:
            write_agent(temporary, agent)
    return Path(folder)


def _rounded(model: PreTrainedModel, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The weights in another type; tied ones stay one."""
    found: dict[int, torch.Tensor] = {}
    named = {}
    for name, tensor in model.state_dict().items():
        key = tensor.data_ptr()
        if key not in found:
            found[key] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        named[name] = found[key]
    return named


def load_model(folder: str | Path, dtype: str = "auto") -> PreTrainedModel:
    """The model of a checkpoint, ready to be played; nothing is downloaded.

    Args:
        folder: as :func:`save_model` or ``save_pretrained`` writes it.
        dtype: of the weights in memory; ``auto`` is what they are stored as.

    Raises:
        SettingError: when there is none, it can't be loaded, or its weights are not whole
            (:mod:`agents.engines.checkpoint_check`).
    """
    return load_checked(folder, dtype)
