"""Lets OpenRLHF run on a machine without a GPU: stand-ins for what only CUDA has.

Python imports this in every process whose PYTHONPATH has this folder: the one that starts a
run, Ray's, and vLLM's.  Nothing is imported here; each module is changed right after it is
imported by whoever wants it.  The product knows nothing of this.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_SETTINGS = {
    "DS_ACCELERATOR": "cpu",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # 15, which starves where others work
}
if __name__ == "sitecustomize":  # a test that imports it keeps its own environment
    for _name, _value in _SETTINGS.items():
        os.environ.setdefault(_name, _value)


class CpuDevice(str):
    """The current device: "cpu" to torch, "0" in a text such as "cuda:0"."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return "0"


# ---- what is changed ---------------------------------------------------------------------------


def _torch_cuda(cuda: Any) -> None:
    cuda.current_device = lambda: CpuDevice("cpu")
    for name in ("set_device", "synchronize", "empty_cache", "current_stream"):
        setattr(cuda, name, lambda *args, **kwargs: None)


def _deepspeed_comm(module: Any) -> None:
    module.build_shm_op = lambda: None  # else it is compiled at first use


def _strategy(module: Any) -> None:
    mesh, config = module.init_device_mesh, module.get_train_ds_config

    def init_device_mesh(kind: str, *args: Any, **kwargs: Any) -> Any:
        return mesh("cpu", *args, **kwargs)

    def get_train_ds_config(*args: Any, **kwargs: Any) -> Any:
        found = config(*args, **kwargs)
        if "optimizer" in found:
            found["optimizer"]["params"]["torch_adam"] = True
        return found

    module.init_device_mesh, module.get_train_ds_config = init_device_mesh, get_train_ds_config


def _weight_group(module: Any) -> None:
    """Weights go from trainer to engine over gloo."""

    def stateless_init_process_group(
        address: str, port: int, rank: int, world_size: int, device: Any
    ) -> Any:
        from datetime import timedelta

        import torch
        from torch.distributed import ProcessGroupGloo, TCPStore

        store = TCPStore(address, port, world_size, rank == 0, timedelta(seconds=300))
        group = ProcessGroupGloo(store, rank, world_size, timedelta(seconds=300))

        class Broadcasts:
            def broadcast(self, tensor: Any, src: int, stream: Any = None) -> None:
                options = torch.distributed.BroadcastOptions()
                options.rootRank, options.rootTensor = src, 0
                group.broadcast([tensor], options).wait()

        return Broadcasts()

    module.stateless_init_process_group = stateless_init_process_group


def _worker(module: Any) -> None:
    """It makes the tensor to be filled on "cuda"."""
    import torch

    def update_weight(
        self: Any, name: str, dtype: Any, shape: Any, empty_cache: bool = False
    ) -> None:
        weight = torch.empty(shape, dtype=dtype)
        self._model_update_group.broadcast(weight, src=0)
        self.model_runner.model.load_weights(weights=[(name, weight)])

    module.WorkerWrap.update_weight = update_weight


def _actor(module: Any) -> None:
    """Packed rows are asked of flash-attention."""
    made = module.Actor.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if "flash" in str(kwargs.get("attn_implementation")):
            kwargs["attn_implementation"] = "sdpa"
        made(self, *args, **kwargs)

    module.Actor.__init__ = __init__


def _flash_attention() -> dict[str, ModuleType]:
    """What of flash-attention OpenRLHF imports to pack rows."""
    import torch
    from einops import rearrange

    def index_first_axis(tensor: Any, indices: Any) -> Any:
        return tensor[indices]

    def unpad_input(hidden: Any, mask: Any) -> Any:
        lengths = mask.sum(-1, dtype=torch.int32)
        indices = torch.nonzero(mask.flatten()).flatten()
        ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        rows = rearrange(hidden, "b s ... -> (b s) ...")
        return rows[indices], indices, ends, int(lengths.max()), lengths

    def pad_input(hidden: Any, indices: Any, batch: int, length: int) -> Any:
        rows = hidden.new_zeros(batch * length, *hidden.shape[1:]).index_copy(0, indices, hidden)
        return rearrange(rows, "(b s) ... -> b s ...", b=batch)

    def all_gather(tensor: Any, group: Any) -> Any:
        raise NotImplementedError("ring attention needs a GPU")

    padding = ModuleType("flash_attn.bert_padding")
    padding.__dict__.update(
        index_first_axis=index_first_axis,
        unpad_input=unpad_input,
        pad_input=pad_input,
        rearrange=rearrange,
    )
    distributed = ModuleType("flash_attn.utils.distributed")
    distributed.__dict__["all_gather"] = all_gather
    return {
        "flash_attn": ModuleType("flash_attn"),
        "flash_attn.bert_padding": padding,
        "flash_attn.utils": ModuleType("flash_attn.utils"),
        "flash_attn.utils.distributed": distributed,
    }


_AFTER: dict[str, Callable[[Any], None]] = {
    "torch.cuda": _torch_cuda,
    "deepspeed.comm.torch": _deepspeed_comm,
    "openrlhf.models.actor": _actor,
    "openrlhf.trainer.ray.vllm_worker_wrap": _worker,
    "openrlhf.utils.deepspeed.deepspeed": _strategy,
    "openrlhf.utils.distributed_util": _weight_group,
}
_WITH_FLASH_ATTENTION = "openrlhf.models.ring_attn_utils"
"""Present only meanwhile, so that nobody else takes it for installed."""


# ---- how ---------------------------------------------------------------------------------------


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, name: str) -> None:
        self._loader, self._name = loader, name

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        there = _flash_attention() if self._name == _WITH_FLASH_ATTENTION else {}
        sys.modules.update(there)
        try:
            self._loader.exec_module(module)
        finally:
            for name in there:
                del sys.modules[name]
        if self._name in _AFTER:
            _AFTER[self._name](module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._looking = False

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if self._looking or (name not in _AFTER and name != _WITH_FLASH_ATTENTION):
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, name)
        return spec


sys.meta_path.insert(0, _Finder())
