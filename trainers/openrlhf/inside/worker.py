"""What runs inside vLLM's worker: OpenRLHF's weight transfer, and showing what came of it."""

from __future__ import annotations

from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap

from agents.engines._vllm_worker import WeightsExtension, differing


class EngineWorker(WorkerWrap, WeightsExtension):
    """Methods that vLLM adds to its worker; called by name."""

    def drv_weights_differ(self, path: str) -> list[str]:
        """Names in a safetensors file whose tensors don't stand in the engine bit for bit.

        Of a model that is split over ranks each rank compares its part.
        """
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            return differing(self.get_model(), list(file.keys()), file.get_tensor)
