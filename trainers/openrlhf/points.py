"""The places of OpenRLHF that the integration holds on to, and putting our classes there.

OpenRLHF has no plug-in interface for a trainer, so the places are looked at when a run
begins: each that has moved in another version is named, before anything is started.  The
version itself is pinned in one place, the extra ``openrlhf`` of pyproject.toml.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from drv_env.errors import SettingError

PACKAGE = "openrlhf"


@dataclass(frozen=True, slots=True)
class Point:
    """A place that is relied on.

    Attributes:
        module: where.
        name: attribute, dotted.
        parameters: names that its function must take.
    """

    module: str
    name: str
    parameters: tuple[str, ...] = ()

    def problem(self) -> str:
        """What is wrong with it, or "".

        Raises:
            ImportError: when its module, or what that needs, can't be imported.
        """
        where = f"{self.module}.{self.name}"
        found: Any = importlib.import_module(self.module)
        for part in self.name.split("."):
            if not hasattr(found, part):
                return f"{where} (not there)"
            found = getattr(found, part)
            if hasattr(found, "__ray_metadata__"):
                found = plain_class(found)
        missing = [name for name in self.parameters if name not in _parameters(found)]
        return f"{where} (takes no {', '.join(missing)})" if missing else ""


_MAKER = "openrlhf.trainer.ppo_utils.experience_maker"
_TRAINER, _ASYNC = "openrlhf.trainer.ppo_trainer", "openrlhf.trainer.ppo_trainer_async"
_LAUNCHER = "openrlhf.trainer.ray.launcher"
_ACTOR, _ENGINE = "openrlhf.trainer.ray.ppo_actor", "openrlhf.trainer.ray.vllm_engine"

POINTS: tuple[Point, ...] = (
    Point("openrlhf.utils.agent", "AgentExecutorBase.execute", ("prompt", "label", "llm_engine")),
    Point(_ENGINE, "RolloutRayActor.generate", ("prompt_token_ids", "sampling_params")),
    Point(_ENGINE, "RolloutRayActor.update_weight", ("name", "dtype", "shape", "empty_cache")),
    Point(_ENGINE, "RolloutRayActor.update_weight_cuda_ipc", ("ipc_handles", "empty_cache")),
    Point("openrlhf.trainer.ray.vllm_worker_wrap", "WorkerWrap.update_weight"),
    Point(_ACTOR, "PolicyModelActor.init_model_from_pretrained", ("strategy",)),
    Point(_ACTOR, "aggregate_loss", ("loss_mask", "batch_num_tokens", "global_batch_size")),
    Point(_ACTOR, "ActorPPOTrainer.training_step", ("experience",)),
    Point(_ACTOR, "masked_mean", ("tensor", "mask", "dim")),
    Point(_MAKER, "RemoteExperienceMaker.make_experience_batch", ("rollout_samples",)),
    Point(_MAKER, "RemoteExperienceMaker.make_experience", ("samples_list",)),
    Point(_MAKER, "RemoteExperienceMaker._dispatch_forward", ("group", "sync_condition")),
    Point(_MAKER, "RemoteExperienceMaker.compute_advantages_and_returns", ("experiences",)),
    Point("openrlhf.trainer.ppo_utils.experience", "Experience", ("info", "advantages", "index")),
    Point(_TRAINER, "PPOTrainer.train_step", ("rollout_samples", "global_step")),
    Point(_TRAINER, "PPOTrainer.broadcast_to_vllm"),
    Point(_TRAINER, "PPOTrainer.save_logs_and_checkpoints", ("global_step", "logs_dict")),
    Point(_ASYNC, "TrainingActor.train_step", ("rollout_samples", "global_step")),
    Point(_ASYNC, "TrainingActor.save_logs_and_checkpoints", ("global_step", "logs_dict")),
    Point(_LAUNCHER, "RayActorGroup.async_run_method", ("method_name",)),
    Point(_LAUNCHER, "ReferenceModelActor.init_model_from_pretrained", ("strategy",)),
    Point("openrlhf.datasets", "SFTDataset"),
    Point("openrlhf.datasets.utils", "blending_datasets", ("dataset_split",)),
)
"""All of them."""


def plain_class(actor: Any) -> Any:
    """The class that ``ray.remote`` was put on."""
    return actor.__ray_metadata__.modified_class.__ray_actor_class__


def check_points(points: Sequence[Point] = POINTS) -> None:
    """Refuse a version of OpenRLHF in which something has moved.

    Raises:
        SettingError: when it, or something that it needs, isn't installed; or naming its
            version, the one that is pinned, and each place that is not as it was.
    """
    try:
        installed = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        raise SettingError(
            "OpenRLHF isn't installed: pip install 'drv-env[openrlhf]' on a machine with a GPU"
        ) from None
    problems: list[str] = []
    absent: dict[str, str] = {}
    for point in points:
        try:
            problems.append(point.problem())
        except ImportError as error:  # one package may be missing in many places
            absent.setdefault(str(error), point.module)
    problems = [problem for problem in problems if problem]
    if absent:
        reasons = "; ".join(f"{error} (for {module})" for error, module in absent.items())
        raise SettingError(
            f"OpenRLHF {installed} can't be imported: {reasons}; install what is missing "
            f"(docs/openrlhf.md says how), or the version this was made for, {pinned()}"
        )
    if problems:
        raise SettingError(
            f"OpenRLHF {installed} can't be used (made for {pinned()}): "
            f"{'; '.join(problems)}; install the version it was made for"
        )


def pinned() -> str:
    """The version that the extra names."""
    for line in metadata.requires("drv-env") or []:
        name, equals, version = line.split(";")[0].strip().partition("==")
        if name == PACKAGE and equals:
            return version
    return "no version"


def install() -> None:
    """Put our classes in OpenRLHF's places, in the process that starts its command line."""
    import ray

    ours: Any = importlib.import_module("trainers.openrlhf.inside.replacements")
    put_in_place(
        (_ENGINE, "RolloutRayActor", ray.remote(ours.EngineActor)),
        (_ACTOR, "PolicyModelActor", ray.remote(num_gpus=1)(ours.PolicyActor)),
        (_LAUNCHER, "ReferenceModelActor", ray.remote(num_gpus=1)(ours.ReferenceActor)),
        (_TRAINER, "PPOTrainer", ray.remote(ours.EpisodeTrainer)),
        (_ASYNC, "TrainingActor", ray.remote(ours.AsyncEpisodeTrainer)),
    )


def put_in_place(*replacements: tuple[str, str, Any]) -> None:
    """Put each thing where OpenRLHF looks for its own: module, name and the thing."""
    for module, name, replacement in replacements:
        setattr(importlib.import_module(module), name, replacement)


def _parameters(function: Any) -> Sequence[str]:
    return list(inspect.signature(function).parameters)
