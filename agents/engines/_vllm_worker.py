"""What runs inside vLLM's worker: weights as they stand in the engine, by checkpoint name.

Imported by vLLM in the process that holds the model, before the model is loaded, and for
no other use.  On a CPU vLLM repacks the weights of linear layers after loading, and
computes with the repacked copies; new weights then go unnoticed.  So on a CPU this
module makes linear layers compute with the weights as loaded.

Where a tensor of the checkpoint stands, whole or in part, says :mod:`agents.engines._vllm_shards`.

Also here: vLLM's processes don't notice that the process they work for was killed; the
worker does.
"""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from agents.engines._vllm_shards import place, values_used

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
        model = self.get_model()  # type: ignore[attr-defined]
        problem = _split(self.parallel_config) or _problem(model, shapes)  # type: ignore[attr-defined]
        if problem:
            return {"problem": problem, "dtypes": {}}
        dtypes = {name: place(model, name, shape).view.dtype for name, shape in shapes.items()}
        return {"problem": "", "dtypes": {k: str(v).split(".")[1] for k, v in dtypes.items()}}

    def drv_weights_load(self, path: str) -> list[str]:
        """Take the tensors of a safetensors file; return the names that differ afterwards."""
        from safetensors import safe_open

        model = self.get_model()  # type: ignore[attr-defined]
        with torch.no_grad(), safe_open(path, "pt") as file:
            names = list(file.keys())
            model.load_weights((name, file.get_tensor(name)) for name in names)
            return [n for n in names if not same_bits(model, n, file.get_tensor(n))]

    def drv_weights_save(
        self, folder: str, shapes: Mapping[str, Sequence[int]]
    ) -> tuple[str, dict[str, tuple[int, list[tuple[int, int]]]]]:
        """Write what this rank has of the tensors, as it stands, to a safetensors file.

        Returns:
            The file in the folder, and by name what of the tensor is in it: the dimension along
            which it is split, and start and length of each piece.
        """
        from safetensors.torch import save_file

        model = self.get_model()  # type: ignore[attr-defined]
        places = {name: place(model, name, shape) for name, shape in shapes.items()}
        path = os.path.join(folder, f"{os.getpid()}.safetensors")
        save_file({name: each.view.cpu().clone() for name, each in places.items()}, path)
        return path, {name: (each.dim, list(each.pieces)) for name, each in places.items()}


def _split(config: Any) -> str:
    """Why the workers' parts can't be updated from a file of this machine, or ""."""
    if config.data_parallel_size != 1 or config.world_size != config.tensor_parallel_size:
        return "the model is split over workers otherwise than by tensor parallelism"
    if config.world_size > 1 and config.distributed_executor_backend != "mp":
        return "the model is split over workers that may be on several machines"
    return ""


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
            view = place(model, name, shape).view
        except (KeyError, AttributeError, ValueError) as error:
            return f"the checkpoint's {name} isn't found in the engine ({error})"
        start = view.untyped_storage().data_ptr()
        seen[start] = seen.get(start, 0) + view.numel()
    for name, parameter in model.named_parameters():
        covered = seen.get(parameter.untyped_storage().data_ptr(), 0)
        if covered != values_used(model, name, parameter):
            return f"the engine's {name} isn't all in the checkpoint"
    return ""


def same_bits(model: nn.Module, name: str, given: Tensor) -> bool:
    """Whether the model has a checkpoint's tensor, or the rank's part, bit for bit, in its type."""
    found = place(model, name, given.shape)
    return _same(found.view.cpu(), found.of(given))


def differing(model: nn.Module, names: Sequence[str], read: Callable[[str], Tensor]) -> list[str]:
    """Names of the checkpoint's tensors that don't stand in the model bit for bit.

    Where vLLM keeps a tensor in a way of its own (experts side by side), the tensors are loaded
    once more, by vLLM, over values that are no numbers: what was there before must come of it.
    Names are then the engine's own.

    Args:
        model: vLLM's, on this rank; as it was afterwards.
        names: by the checkpoint.
        read: gives the whole tensor of a name.
    """
    try:
        return [name for name in names if not same_bits(model, name, read(name))]
    except (KeyError, ValueError):
        return _differing_when_loaded(model, names, read)


def _differing_when_loaded(
    model: Any, names: Sequence[str], read: Callable[[str], Tensor]
) -> list[str]:
    before = {name: each.detach().cpu().clone() for name, each in model.named_parameters()}
    found = []
    with torch.no_grad():
        try:
            for each in model.parameters():
                each.fill_(torch.nan if each.is_floating_point() else 0)
            model.load_weights((name, read(name)) for name in names)
        finally:
            for name, each in model.named_parameters():
                if not _same(each.detach().cpu(), before[name]):
                    found.append(name)
                    each.copy_(before[name])
    return found


def _same(own: Tensor, other: Tensor) -> bool:
    return own.dtype == other.dtype and torch.equal(
        own.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)
    )
