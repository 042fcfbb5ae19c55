"""What runs inside vLLM's worker: OpenRLHF's weight transfer, and showing what came of it."""

from __future__ import annotations

from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap

from agents.engines._vllm_worker import WeightsExtension, same_bits


class EngineWorker(WorkerWrap, WeightsExtension):
    """Methods that vLLM adds to its worker; called by name."""

    def drv_weights_differ(self, path: str) -> list[str]:
        """Names in a safetensors file whose tensors don't stand in the engine bit for bit."""
        from safetensors import safe_open

        model = self.get_model()
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            return [name for name in names if not same_bits(model, name, file.get_tensor(name))]
