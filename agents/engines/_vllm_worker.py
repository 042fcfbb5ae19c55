"""What runs inside vLLM's worker: weights as they stand in the engine, by checkpoint name.

Imported by vLLM in the process that holds the model, before the model is loaded, and for
no other use.  On a CPU vLLM repacks the weights of linear layers after loading, and
computes with the repacked copies; new weights then go unnoticed.  So on a CPU this
module makes linear layers compute with the weights as loaded.

A tensor of the checkpoint is a parameter of the engine's model, or a stretch of one where
vLLM has put several together (``qkv_proj``, ``gate_up_proj``).

Also here: vLLM's processes don't notice that the process they work for was killed; the
worker does.
"""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

_PLAIN_METHODS = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"}


def _compute_with_weights_as_loaded() -> None:
    """Where vLLM has no such function any more, :func:`_problem` tells."""
    from vllm.model_executor.layers import utils

    def plain(layer: nn.Module, remove_weight: bool = False) -> None:
        setattr(layer, "cpu_linear", torch.nn.functional.linear)  # noqa: B010 (no parameter)

    if _on_cpu() and hasattr(utils, "dispatch_cpu_unquantized_gemm"):
        utils.dispatch_cpu_unquantized_gemm = plain


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


if importlib.util.find_spec("vllm") is not None:
    _compute_with_weights_as_loaded()


class WeightsExtension:
    """Methods that vLLM adds to its worker; called by name."""

    def drv_end_with(self, pid: int) -> None:
        """End vLLM's processes when process ``pid`` of this machine has ended, however.

        The worker leaves the terminal's process group: Ctrl-C is for those who can close the
        engine in order, and a worker that dies of it looks like one that broke.
        """
        with suppress(OSError):  # it leads a group already
            os.setsid()
        backend: Any = self.parallel_config.distributed_executor_backend  # type: ignore[attr-defined]
        if backend in ("mp", "uni") and hasattr(os, "pidfd_open"):
            core = os.getppid() if backend == "mp" else os.getpid()
            watch = (os.pidfd_open(pid), core)
            threading.Thread(target=_end_with, args=watch, name="drv-watch", daemon=True).start()

    def drv_weights_begin(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        """Say how the checkpoint's tensors stand in the engine.

        Args:
            shapes: of the checkpoint's tensors, by name.

        Returns:
            ``problem``, why weights can't be updated, or ""; ``dtypes`` by name.
        """
        config: Any = self.parallel_config  # type: ignore[attr-defined]
        if config.world_size * config.data_parallel_size != 1:
            return {"problem": "the model is split over several workers", "dtypes": {}}
        model = self.get_model()  # type: ignore[attr-defined]
        problem = _problem(model, shapes)
        if problem:
            return {"problem": problem, "dtypes": {}}
        dtypes = {name: _view(model, name, shape).dtype for name, shape in shapes.items()}
        return {"problem": "", "dtypes": {k: str(v).split(".")[1] for k, v in dtypes.items()}}

    def drv_weights_load(self, path: str) -> list[str]:
        """Take the tensors of a safetensors file; return the names that differ afterwards."""
        from safetensors import safe_open

        model = self.get_model()  # type: ignore[attr-defined]
        with torch.no_grad(), safe_open(path, "pt") as file:
            names = list(file.keys())
            model.load_weights((name, file.get_tensor(name)) for name in names)
            return [n for n in names if not same_bits(model, n, file.get_tensor(n))]

    def drv_weights_save(self, path: str, shapes: Mapping[str, Sequence[int]]) -> None:
        """Write the tensors as they stand to a safetensors file."""
        from safetensors.torch import save_file

        model = self.get_model()  # type: ignore[attr-defined]
        views = {name: _view(model, name, shape) for name, shape in shapes.items()}
        save_file({name: view.cpu().clone() for name, view in views.items()}, path)


def _end_with(host: int, core: int) -> None:
    """Wait for the process behind a descriptor, then tell vLLM's process to end."""
    ended = select.poll()
    ended.register(host, select.POLLIN)
    ended.poll()
    os.kill(core, signal.SIGTERM)


def _problem(model: nn.Module, shapes: Mapping[str, Sequence[int]]) -> str:
    """Why new weights might go unnoticed, or ""."""
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if method is not None and type(method).__name__ not in _PLAIN_METHODS:
            return f"{name} doesn't compute with plain weights ({type(method).__name__})"
        if _on_cpu() and method is not None:
            used = getattr(module, "cpu_linear", torch.nn.functional.linear)
            if used is not torch.nn.functional.linear:
                return f"{name} computes with repacked weights in this version of vLLM"
    seen: dict[int, int] = {}
    for name, shape in shapes.items():
        try:
            view = _view(model, name, shape)
        except (KeyError, AttributeError, ValueError) as error:
            return f"the checkpoint's {name} isn't found in the engine ({error})"
        start = view.untyped_storage().data_ptr()
        seen[start] = seen.get(start, 0) + view.numel()
    for name, parameter in model.named_parameters():
        covered = seen.get(parameter.untyped_storage().data_ptr(), 0)
        if covered != _used_numel(model, name, parameter):
            return f"the engine's {name} isn't all in the checkpoint"
    return ""


def _view(model: nn.Module, name: str, shape: Sequence[int]) -> Tensor:
    """The checkpoint's tensor ``name`` as it stands in the engine."""
    parameters = dict(model.named_parameters())
    found: Tensor | None = parameters.get(name)
    if found is None:
        path, _, leaf = name.rpartition(".")
        parent, _, part = path.rpartition(".")
        packed: Mapping[str, Sequence[str]] = getattr(model, "packed_modules_mapping", {})
        for whole, parts in packed.items():
            whole_name = f"{parent}.{whole}.{leaf}"
            if part in parts and whole_name in parameters:
                sizes: Any = model.get_submodule(f"{parent}.{whole}").output_partition_sizes
                start = sum(sizes[: list(parts).index(part)])
                length = sizes[list(parts).index(part)]
                found = parameters[whole_name][start : start + length]
    if found is None:
        raise KeyError("no parameter of that name")
    if list(found.shape) != list(shape):
        found = found[: _rows(model, name)]  # an embedding has rows to spare
    if list(found.shape) != list(shape):
        raise ValueError(f"its shape is {list(found.shape)}, the checkpoint's {list(shape)}")
    return found.detach()


def _rows(model: nn.Module, name: str) -> int | None:
    """Rows of an embedding that are used; None for what is no embedding."""
    return getattr(model.get_submodule(name.rpartition(".")[0]), "org_vocab_size", None)


def _used_numel(model: nn.Module, name: str, parameter: Tensor) -> int:
    return parameter[: _rows(model, name)].numel()


def same_bits(model: nn.Module, name: str, given: Tensor) -> bool:
    """Whether the model has a checkpoint's tensor bit for bit, in its type."""
    own = _view(model, name, given.shape).cpu().contiguous()
    return own.dtype == given.dtype and torch.equal(
        own.view(torch.uint8), given.contiguous().view(torch.uint8)
    )
