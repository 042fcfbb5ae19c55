"""Making the engine that the options name; the only place that loads a model to be played."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.engines.base import ChatEngine, Engine
from drv_env.env_file import read_env_file
from drv_env.errors import SettingError
from drv_env.secrets import Secret, as_secret
from replay.pieces import Pieces
from trainers.commands.agent_options import EngineKind, ModelOptions

USUAL_KEY = "OPENAI_API_KEY"


def make_engine(
    kind: EngineKind,
    options: ModelOptions,
    context: int | None,
    parallel: int,
    seed: int,
    pieces: Pieces | None,
    **vllm_arguments: Any,
) -> Engine | ChatEngine:
    """The engine of a kind; its owner closes it.

    Args:
        kind: which.
        options: the model's.
        context: tokens that an episode may fill, where anyone counts.
        parallel: episodes at once.
        seed: of the sampling.
        pieces: the model's tokenizer, where it is known.
        vllm_arguments: further ones of :class:`agents.engines.vllm.VllmEngine`.

    Raises:
        SettingError: naming the option that can't work.
    """
    if kind == "transformers":
        return _transformers(options, context, parallel, seed, pieces)
    if kind == "vllm":
        return _vllm(options, context, parallel, seed, vllm_arguments)
    assert options.base_url is not None  # checked before
    key = api_key(options.api_key_env)
    fields: dict[str, Any] = {
        "leave_out": options.omit_field,
        "max_tokens_field": options.max_tokens_field or "max_tokens",
    }
    if kind == "openai-ids":
        from agents.engines.openai_ids import OpenAIServerEngine

        return OpenAIServerEngine(
            options.base_url,
            options.model,
            key,
            max_in_flight=parallel,
            vocabulary=None if pieces is None else pieces.size,
            **fields,
        )
    from agents.engines.openai_chat import OpenAIChatEngine

    return OpenAIChatEngine(options.base_url, options.model, key, max_in_flight=parallel, **fields)


def api_key(name: str) -> Secret | None:
    """The key that a variable holds, in the environment or in .env; a local server needs none.

    Raises:
        SettingError: when .env can't be read, when another variable than the usual one is named
            and not set, and when what is named is no name; it may be the key itself, and is not
            shown.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise SettingError(
            "--api-key-env takes the name of a variable (letters, digits and _), not the key itself"
        )
    values = {**read_env_file(".env"), **os.environ}
    key = as_secret(values.get(name))
    if key is None and name != USUAL_KEY:
        raise SettingError(
            f"{name}, which --api-key-env names, is not set: put the server's key into the "
            "environment or into .env under this name"
        )
    return key


def _transformers(
    options: ModelOptions, context: int | None, parallel: int, seed: int, pieces: Pieces | None
) -> Engine:
    try:
        import torch

        from agents.engines.transformers import TransformersEngine
        from trainers.checkpoint import load_model
    except ImportError as error:
        raise SettingError(
            f"--engine transformers needs torch and Transformers ({error}): "
            "pip install 'drv-env[train]'"
        ) from None
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = load_model(Path(options.model), options.dtype)
    try:
        return TransformersEngine(
            model, slots=parallel, max_context=context, device=device, seed=seed, pieces=pieces
        )
    except (RuntimeError, AssertionError) as error:  # no memory, no such device
        raise SettingError(
            f"the model can't be run on {device} with --parallel {parallel} and --max-context "
            f"{context}: {error}"
        ) from None


def _vllm(
    options: ModelOptions,
    context: int | None,
    parallel: int,
    seed: int,
    arguments: Mapping[str, Any],
) -> Engine:
    # what vLLM tells of itself belongs beside the output, not into it
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    try:
        from agents.engines.vllm import VllmEngine
    except ImportError as error:
        raise SettingError(
            f"--engine vllm needs vLLM ({error}): pip install 'drv-env[vllm]'"
        ) from None
    return VllmEngine(
        options.model,
        max_context=context,
        seed=seed,
        dtype=options.dtype,
        max_num_seqs=parallel,
        **arguments,
    )
