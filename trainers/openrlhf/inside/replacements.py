"""What stands in the place of OpenRLHF's own classes: subclasses, each with the least in it.

Each runs in a process of Ray's; which classes they replace, and where, says
:mod:`trainers.openrlhf.points`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
import torch
from openrlhf.trainer import ppo_trainer, ppo_trainer_async
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ray import launcher, ppo_actor, vllm_engine

from drv_env.errors import EngineError
from replay.store import write_trajectories
from replay.trajectory import Trajectory
from trainers.openrlhf.experience import Learnt, learn, with_rank_gains
from trainers.openrlhf.inside.guards import guard_means
from trainers.openrlhf.inside.rotary import exact_rotary
from trainers.openrlhf.metrics import append_metrics, renamed
from trainers.openrlhf.points import plain_class
from trainers.openrlhf.records import KEY, unpack
from trainers.openrlhf.run import OpenRLHFRun, read_run
from trainers.openrlhf.scoring import Gains, gains_on_rank, shares, whole_weights
from trainers.registry import import_plugins
from trainers.rl_metrics import Phases, transcript_tokens

_Engine: Any = plain_class(vllm_engine.RolloutRayActor)
_Actor: Any = plain_class(ppo_actor.PolicyModelActor)
_Reference: Any = plain_class(launcher.ReferenceModelActor)
_Trainer: Any = plain_class(ppo_trainer.PPOTrainer)
_AsyncTrainer: Any = plain_class(ppo_trainer_async.TrainingActor)


class EngineActor(_Engine):
    """Around vLLM: counts its weight transfers, and compares what came.

    Attributes:
        weight_version: transfers so far.
    """

    async def __init__(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[misc]
        kwargs["worker_extension_cls"] = "trainers.openrlhf.inside.worker.EngineWorker"
        kwargs["logprobs_mode"] = "raw_logprobs"
        self.weight_version = 0
        await super().__init__(*args, **{**kwargs, **read_run().cluster.engine_arguments})

    async def update_weight(
        self, name: str, dtype: Any, shape: Any, empty_cache: bool = False
    ) -> Any:
        """Take one tensor; ``empty_cache`` is said with the last of a transfer."""
        done = await super().update_weight(name, dtype, shape, empty_cache)
        self.weight_version += empty_cache
        return done

    async def update_weight_cuda_ipc(
        self, name: str, dtype: Any, shape: Any, ipc_handles: Any, empty_cache: bool = False
    ) -> Any:
        """The same between processes that share a device."""
        done = await super().update_weight_cuda_ipc(name, dtype, shape, ipc_handles, empty_cache)
        self.weight_version += empty_cache
        return done

    async def drv_weights_differ(self, path: str) -> list[str]:
        """Names in a safetensors file whose tensors the engine doesn't have bit for bit."""
        found: list[list[str]] = await self.llm.collective_rpc("drv_weights_differ", args=(path,))
        return sorted({name for names in found for name in names})


class PolicyActor(_Actor):
    """A rank of the model that is trained: scores information gain as well."""

    def init_model_from_pretrained(self, strategy: Any, *args: Any, **kwargs: Any) -> Any:
        """As OpenRLHF does it."""
        guard_means(strategy.args.actor.loss_agg_mode == "token-mean")
        self._run = read_run()
        self._template = self._run.template()
        done = super().init_model_from_pretrained(strategy, *args, **kwargs)
        exact_rotary(self.actor.model.module)
        return done

    def drv_gains(self, trajectories: Sequence[Trajectory]) -> list[Gains]:
        """Gains of each turn of these trajectories."""
        return gains_on_rank(
            self.actor.model,
            self.strategy.args.ds.zero_stage,
            trajectories,
            self._template,
            self._run.rl.config.gain,
            self._run.cluster.score_tokens,
            self._run.rl.config.scoring,
        )

    def drv_save_weights(self, path: str) -> None:
        """Write the weights as they stand to a safetensors file; rank 0 does."""
        from safetensors.torch import save_file

        engine = self.actor.model
        with whole_weights(engine, self.strategy.args.ds.zero_stage):
            if self.strategy.is_rank_0():
                tensors = {
                    name: parameter.detach().cpu().contiguous()
                    for name, parameter in engine.module.named_parameters()
                }
                save_file(tensors, path)


class ReferenceActor(_Reference):
    """A rank of the model that the KL penalty holds the policy to."""

    def init_model_from_pretrained(self, *args: Any, **kwargs: Any) -> Any:
        """As OpenRLHF does it."""
        done = super().init_model_from_pretrained(*args, **kwargs)
        exact_rotary(self.model.model.module)
        return done


class EpisodeExperienceMaker(RemoteExperienceMaker):  # type: ignore[misc]
    """Makes experiences of our episodes: takes the trajectories out, gives advantages.

    Attributes:
        run: the run.
        version: weight transfers before the step's update.
        step: its number from 1.
        trajectories: of the last step, with their gains.
        metrics: of the last step.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.run: OpenRLHFRun = read_run()
        import_plugins(self.run.rl.plugins)
        self.version, self.step = 0, 1
        self.trajectories: list[Trajectory] = []
        self.metrics: dict[str, float] = {}
        self._sampled: list[Any] = []

    def make_experience_batch(self, rollout_samples: Sequence[Any]) -> Any:
        """Experiences of a step's rollouts, groups together."""
        self.trajectories = [unpack(sample.info.pop(KEY).numpy()) for sample in rollout_samples]
        return super().make_experience_batch(rollout_samples)

    def make_experience(self, samples_list: Sequence[Any]) -> Any:
        """Log-probs of what was sampled, by OpenRLHF."""
        self._sampled = [sample.rollout_log_probs for sample in samples_list]
        return super().make_experience(samples_list)

    def _dispatch_forward(self, group: Any, sync_condition: bool, **kwargs: Any) -> Any:
        # without importance correction the old log-probs are those of the sampling
        if group is self.actor_model_group and self.run.rl.config.loss.importance_cap is None:
            copies = self.args.ds.ring_attn_size * self.args.ds.tensor_parallel_size
            return ray.put([[known] for known in self._sampled for _ in range(copies)])
        return super()._dispatch_forward(group, sync_condition, **kwargs)

    def compute_advantages_and_returns(self, experiences: Sequence[Any]) -> Any:
        """Gains, then advantages, then those of each experience's rows."""
        config = self.run.rl.config
        phases = Phases()
        if config.credit.information_gain and config.gain_by == "model":
            self.trajectories = self._scored(self.trajectories)
            phases.end("information_gain", transcript_tokens(self.trajectories))
        groups = [index // config.group_size for index in range(len(self.trajectories))]
        learnt = learn(self.trajectories, groups, config, self.version, self.step)
        self.metrics = {**learnt.metrics, **phases.figures}
        for experience in experiences:
            _place(experience, learnt)
        return experiences

    def _scored(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        ranks = self.actor_model_group._actor_handlers
        shared = shares(trajectories, len(ranks))
        found = ray.get(
            [
                rank.drv_gains.remote([trajectories[index] for index in indices])
                for rank, indices in zip(ranks, shared, strict=True)
            ]
        )
        return with_rank_gains(trajectories, shared, found)


def _place(experience: Any, learnt: Learnt) -> None:
    """Put advantages and masks where OpenRLHF's loss reads them."""
    mask = experience.action_mask.clone()
    advantages = torch.zeros(mask.shape, dtype=torch.float32)
    for row, index in enumerate(experience.index):
        values = learnt.advantages[index]
        if values is None:
            mask[row] = 0
        else:
            advantages[row, : len(values)] = torch.from_numpy(np.ascontiguousarray(values))
    experience.action_mask = mask
    experience.advantages = advantages
    experience.returns = advantages.clone()
    experience.kl = None
    for name, value in experience.info.items():  # a mean over no token at all
        experience.info[name] = torch.nan_to_num(value.float())


class _Episodes:
    """What the trainer of either mode does besides."""

    def _take_over(self: Any) -> None:
        self.run = read_run()
        self.syncs = 0
        self.experience_maker = EpisodeExperienceMaker(
            self.actor_model_group,
            self.critic_model_group,
            self.reward_model_group,
            self.reference_model_group,
            self.kl_ctl,
            self.strategy,
            self.tokenizer,
        )

    def train_step(self: Any, rollout_samples: Any, global_step: int) -> Any:
        """One update step; its figures."""
        self.experience_maker.version = self.syncs
        self.experience_maker.step = global_step + 1  # it counts the steps that are done
        return super().train_step(rollout_samples, global_step)  # type: ignore[misc]

    def broadcast_to_vllm(self: Any) -> None:
        """Move the weights to the engines, and compare them the first few times."""
        super().broadcast_to_vllm()  # type: ignore[misc]
        self.syncs += 1
        if self.syncs <= self.run.cluster.check_syncs:
            self._compare()

    def _compare(self: Any) -> None:
        path = self.run.out.resolve() / ".weights-to-compare.safetensors"
        ray.get(self.actor_model_group.async_run_method("drv_save_weights", str(path)))
        engines = self.vllm_engines
        differ = ray.get([engine.drv_weights_differ.remote(str(path)) for engine in engines])
        path.unlink()
        for number, names in enumerate(differ):
            if names:
                raise EngineError(
                    f"engine {number} has not taken the model's weights: {len(names)} tensors "
                    f"differ, {', '.join(names[:3])} among them; check the weights' transfer "
                    "(--vllm.sync_backend)"
                )

    def save_logs_and_checkpoints(
        self: Any, global_step: int, logs_dict: Any = None, client_states: Any = None
    ) -> None:
        """Write a step's metrics and trajectories, and a state where one is due."""
        maker = self.experience_maker
        figures = {
            **maker.metrics,
            **renamed(logs_dict or {}, self.run.rl.config.loss.kl_weight),
            "weight_version": float(self.syncs),
            "syncs_compared": float(min(self.syncs, self.run.cluster.check_syncs)),
        }
        append_metrics(self.run.out, global_step, figures)
        name = f"rl-{global_step:04d}.parquet"
        write_trajectories(self.run.out / "trajectories" / name, maker.trajectories)
        shown = {name: (logs_dict or {}).get(name) for name in ("generated_samples",)}
        super().save_logs_and_checkpoints(  # type: ignore[misc]
            global_step, {**figures, **shown}, client_states
        )


class EpisodeTrainer(_Episodes, _Trainer):
    """Rollouts and updates by turns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._take_over()


class AsyncEpisodeTrainer(_Episodes, _AsyncTrainer):
    """Updates while the next rollouts are played."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._take_over()
