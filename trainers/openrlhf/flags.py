"""Our settings as flags of OpenRLHF's command line, and what does not go together.

Flags are made of settings in one place, so that one configuration serves both trainers.
Further flags of the user's go behind them as they are; a flag that a setting decides is
refused, and so is one that would change rewards, sampling or advantages unseen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drv_env.episode import Rules
from drv_env.errors import SettingError
from trainers.openrlhf.run import TASKS, OpenRLHFRun, Reinforcement
from trainers.optimiser_settings import OptimiserSettings

Flags = dict[str, Any]
"""Values by name without dashes: True for a bare flag, a list for several values."""

AGENT = Path(__file__).parent / "inside" / "agent.py"

_DECIDED = {
    "actor.model_name_or_path": "model",
    "ckpt.output_dir": "out",
    "ckpt.path": "out",
    "logger.tensorboard_dir": "out",
    "ckpt.load_enable": "resume",
    "ckpt.save_steps": "save_every",
    "train.seed": "seed",
    "train.agent_func_path": "the integration",
    "data.prompt_dataset": "tasks",
    "data.input_key": "the integration",
    "data.label_key": "the integration",
    "data.max_len": "rules.max_context",
    "rollout.batch_size": "tasks_per_step",
    "rollout.n_samples_per_prompt": "group_size",
    "rollout.temperature": "sampling (rollouts to train on are sampled at temperature 1)",
    "rollout.top_p": "sampling (rollouts to train on are sampled without top_p)",
    "rollout.max_new_tokens": "rules.max_turn_tokens",
    "train.batch_size": "minibatches",
    "train.num_episodes": "steps",
    "train.max_epochs": "steps",
    "algo.advantage.estimator": "credit",
    "algo.advantage.gamma": "credit.gamma",
    "algo.advantage.no_std_norm": "credit.std_norm",
    "algo.advantage.is_correction_level": "loss.importance_cap",
    "algo.advantage.is_correction_mode": "loss.importance_cap",
    "algo.advantage.is_correction_gating": "loss.importance_cap",
    "algo.advantage.is_correction_threshold": "loss.importance_cap",
    "algo.kl.init_coef": "loss.kl_weight",
    "algo.kl.use_loss": "loss.kl_weight",
    "algo.kl.estimator": "loss.kl_estimator",
    "algo.kl.unbiased_gradient": "loss.kl_by_ratio",
    "algo.kl.target": "loss.kl_weight, which is constant",
    "actor.eps_clip": "loss.clip_low and loss.clip_high",
    "actor.eps_clip_low_high": "loss.clip_low and loss.clip_high",
    "actor.loss_agg_mode": "loss.aggregation",
    "actor.adam.lr": "learning_rate",
    "actor.adam.betas": "betas",
    "actor.adam.weight_decay": "weight_decay",
    "actor.lr_scheduler": "schedule",
    "actor.lr_warmup_ratio": "warmup_steps or warmup_share",
    "actor.min_lr_ratio": "schedule",
    "actor.dual_clip": "loss.dual_clip",
    "actor.max_norm": "max_grad_norm",
    "actor.num_nodes": "cluster.nodes",
    "actor.num_gpus_per_node": "cluster.gpus",
    "ref.num_nodes": "cluster.nodes",
    "ref.num_gpus_per_node": "cluster.gpus",
    "vllm.num_engines": "cluster.engines",
    "vllm.tensor_parallel_size": "cluster.engine_gpus",
    "train.colocate_all": "cluster.colocate",
    "ds.zero_stage": "cluster.zero_stage",
    "ds.packing_samples": "packed",
    "train.dynamic_batch_enable": "packed",
    "train.max_tokens_per_gpu": "microbatch_tokens",
    "rollout.max_tokens_per_gpu": "microbatch_tokens",
    "train.async_enable": "max_staleness",
    "train.async_queue_size": "max_staleness",
}
"""Flags that a setting decides."""

_REFUSED = {
    "reward.overlong_buffer_len": "rewards come from the episodes alone",
    "reward.stop_properly_penalty_coef": "rewards come from the episodes alone",
    "reward.normalize_enable": "rewards come from the episodes alone",
    "reward.remote_url": "rewards come from the episodes alone",
    "data.apply_chat_template": "episodes make their own prompts",
    "data.input_template": "episodes make their own prompts",
    "ds.lora.rank": "OpenRLHF does not move adapters to vLLM; train all weights, or on one device",
    "ds.load_in_4bit": "OpenRLHF does not move 4-bit weights to vLLM",
    "ds.param_dtype": "weights move to vLLM in bfloat16",
}
"""Flags that can't go with our episodes, and why."""

_KL_BY_RATIO = (
    "loss.kl_by_ratio goes with kl_estimator k3 on OpenRLHF, whose gradient is the same there; "
    "not with {}"
)


def arguments_of(run: OpenRLHFRun) -> list[str]:
    """The arguments of ``openrlhf.cli.train_ppo_ray`` for a reinforcement.

    Raises:
        SettingError: for what does not go together, or OpenRLHF can't do.
    """
    check(run)
    return [*written(_flags(run)), *run.cluster.flags]


def check(run: OpenRLHFRun) -> None:
    """Refuse what can't work, before anything is started.

    Raises:
        SettingError: naming the setting, its value and what would.
    """
    rl, cluster = run.rl, run.cluster
    _check_config(rl)
    _check_game(rl)
    given = given_flags(cluster.flags)
    refuse_decided(given, _DECIDED, _REFUSED)
    _refuse_bonus(given, rl.config.loss.entropy_weight)
    ranks = cluster.nodes * cluster.gpus
    ring = counted(given, "ds.ring_attn_size")
    tensor = counted(given, "ds.tensor_parallel_size")
    if ranks % (ring * tensor):
        raise SettingError(
            f"{ranks} devices can't be split into groups of --ds.ring_attn_size {ring} × "
            f"--ds.tensor_parallel_size {tensor}"
        )
    if ring > 1 and not rl.config.packed:
        raise SettingError("--ds.ring_attn_size needs packed: it cuts packed rows into pieces")
    if rl.config.gain_by not in ("model", "engine"):
        raise SettingError(
            f"gain_by {rl.config.gain_by}: on OpenRLHF gains are scored by the model or the engine"
        )
    if tensor > 1 and rl.config.credit.information_gain and rl.config.gain_by == "model":
        raise SettingError(
            "gain_by model scores each trajectory on one device, which has no whole layers under "
            '--ds.tensor_parallel_size; set gain_by to "engine", or use --ds.ring_attn_size'
        )
    micro = counted(given, "train.micro_batch_size")
    if rl.config.packed and micro != 1:
        raise SettingError(
            "packed takes microbatch_tokens a pass; --train.micro_batch_size does not go with it"
        )
    share = ranks // (ring * tensor)
    per_update = _per_update(rl)
    if per_update % (share * micro):
        raise SettingError(
            f"an update's {per_update} rollouts can't be shared by {share} ranks with {micro} in a "
            "pass: tasks_per_step × group_size / minibatches must be a multiple of both together"
        )
    if cluster.colocate and ranks != cluster.engines * cluster.engine_gpus:
        raise SettingError(
            f"colocate needs as many devices for the model ({ranks}) as for the engines "
            f"({cluster.engines} × {cluster.engine_gpus})"
        )
    if cluster.colocate and rl.config.max_staleness:
        raise SettingError(
            "colocate lets trainer and engines take turns, and max_staleness lets them work at "
            "the same time; choose one"
        )


def _check_config(rl: Reinforcement) -> None:
    config = rl.config
    refuse_precision(config.precision)
    if config.loss.aggregation == "constant":
        raise SettingError(
            "loss.aggregation constant is not in OpenRLHF; use rollout_mean or token_mean"
        )
    if config.loss.kl_by_ratio and config.loss.kl_estimator != "k3":
        raise SettingError(_KL_BY_RATIO.format(config.loss.kl_estimator))
    settings = config.rollout
    if settings.stragglers != "wait":
        raise SettingError(
            f"rl.rollout.stragglers {settings.stragglers} needs to see a whole batch, which "
            "OpenRLHF spreads over engines; set it to wait, and bound an episode with "
            "rules.max_seconds, after which it is asked for its answer, or with "
            "rl.rollout.episode_timeout"
        )
    if settings.max_requests is not None:
        raise SettingError(
            "max_requests is vLLM's own business on OpenRLHF: set cluster.engine_arguments "
            f'{{"max_num_seqs": {settings.max_requests}}}'
        )
    _per_update(rl)


def _refuse_bonus(given: Mapping[str, str], weight: float) -> None:
    """Refuse a bonus by flag; a weight of 0 there only measures the entropy."""
    for name, value in given.items():
        if "actor.entropy_coef".startswith(name) and (weight > 0 or value not in ("0", "0.0")):
            raise SettingError(
                "the flag --actor.entropy_coef is decided by loss.entropy_weight; set that "
                "instead (a 0, which only measures the entropy, may be given where the weight is 0)"
            )


def _check_game(rl: Reinforcement) -> None:
    if rl.game.rules.get("max_context") is None:
        raise SettingError(
            "rules.max_context must be set: OpenRLHF cuts off what is longer than its rows"
        )
    rules = Rules(**rl.game.rules)
    sampling = rl.config.sampling
    if sampling is not None and sampling.max_tokens > rules.max_turn_tokens:
        raise SettingError(
            f"a turn may be sampled up to {sampling.max_tokens} tokens, but the rules hold back "
            f"only {rules.max_turn_tokens} for one (max_turn_tokens)"
        )
    if rl.game.tools == "recorded" and rl.game.web is None:
        raise SettingError("recorded tools need web, a folder made by drv data web")


def _per_update(rl: Reinforcement) -> int:
    rollouts = rl.config.tasks_per_step * rl.config.group_size
    if rollouts % rl.config.minibatches:
        raise SettingError(
            f"{rollouts} rollouts a step (tasks_per_step × group_size) can't be cut into "
            f"{rl.config.minibatches} equal minibatches"
        )
    return rollouts // rl.config.minibatches


def _flags(run: OpenRLHFRun) -> Flags:
    rl, cluster = run.rl, run.cluster
    config, loss = rl.config, rl.config.loss
    rules = Rules(**rl.game.rules)
    out = run.out.resolve()
    flags: Flags = {
        "actor.model_name_or_path": run.model.resolve(),
        "ckpt.output_dir": run.final.resolve(),
        "ckpt.path": run.state.resolve(),
        "ckpt.save_steps": config.save_every,
        "ckpt.load_enable": run.resume,
        "ckpt.max_num": 2,
        "logger.tensorboard_dir": out / "tensorboard",
        "train.seed": config.seed % 2**32,  # NumPy's generator takes no more
        "train.agent_func_path": AGENT,
        "data.prompt_dataset": out / TASKS,
        "data.input_key": "input",
        "data.label_key": "label",
        "data.max_len": rules.max_context,
        "rollout.batch_size": config.tasks_per_step,
        "rollout.n_samples_per_prompt": config.group_size,
        "rollout.temperature": 1.0,
        "rollout.top_p": 1.0,
        "rollout.max_new_tokens": rules.max_turn_tokens,
        "train.batch_size": _per_update(rl),
        "algo.advantage.estimator": "group_norm",  # of no effect: the advantages are ours
        "actor.eps_clip_low_high": [loss.clip_low, loss.clip_high],
        "actor.loss_agg_mode": (
            "token-mean" if loss.aggregation == "token_mean" else "seq-mean-token-mean"
        ),
        **optimiser_flags(config, config.steps, "actor."),
        "actor.gradient_checkpointing_enable": run.gradient_checkpointing,
        "actor.num_nodes": cluster.nodes,
        "actor.num_gpus_per_node": cluster.gpus,
        "ref.num_nodes": cluster.nodes,
        "ref.num_gpus_per_node": cluster.gpus,
        "vllm.num_engines": cluster.engines,
        "vllm.tensor_parallel_size": cluster.engine_gpus,
        "vllm.enable_prefix_caching": True,
        "train.colocate_all": cluster.colocate,
        "vllm.enable_sleep": cluster.colocate,
        "ds.enable_sleep": cluster.colocate,
        "ds.zero_stage": cluster.zero_stage,
        "algo.kl.init_coef": loss.kl_weight,
    }
    if loss.kl_weight > 0:
        flags |= {"algo.kl.use_loss": True, "algo.kl.estimator": loss.kl_estimator}
        flags["algo.kl.unbiased_gradient"] = loss.kl_by_ratio
    if loss.dual_clip is not None:
        flags["actor.dual_clip"] = loss.dual_clip
    if loss.entropy_weight > 0:
        flags["actor.entropy_coef"] = loss.entropy_weight
    if loss.importance_cap is not None:
        flags |= {
            "algo.advantage.is_correction_level": "token",
            "algo.advantage.is_correction_mode": "clip",
            "algo.advantage.is_correction_gating": "ratio",
            "algo.advantage.is_correction_threshold": [0.0, loss.importance_cap],
        }
    if config.packed:
        flags |= {"ds.packing_samples": True, "train.dynamic_batch_enable": True}
        given = given_flags(cluster.flags)
        pieces = counted(given, "ds.ring_attn_size")
        pieces *= counted(given, "ds.tensor_parallel_size")
        for part in ("train", "rollout"):  # a row that is cut into pieces has one on each device
            flags[f"{part}.max_tokens_per_gpu"] = max(1, config.microbatch_tokens // pieces)
    if config.max_staleness:
        flags |= {"train.async_enable": True, "train.async_queue_size": config.max_staleness}
    return flags


def optimiser_flags(settings: OptimiserSettings, steps: int, prefix: str = "") -> Flags:
    """AdamW, its schedule and the clipping as flags of either command line.

    Args:
        settings: of the run.
        steps: of the run, by which the warm-up becomes a share.
        prefix: of the flags' names.
    """
    schedule = settings.schedule
    # OpenRLHF rounds steps × share up, and floating point may put 25 × (7 / 25) above 7
    share = math.nextafter(min(1.0, settings.warmup(steps) / steps), 0.0)
    flags: Flags = {
        "adam.lr": settings.learning_rate,
        "adam.betas": list(settings.betas),
        "adam.weight_decay": settings.weight_decay,
        "lr_scheduler": "constant_with_warmup" if schedule == "constant" else schedule,
        "lr_warmup_ratio": share,
        "max_norm": settings.max_grad_norm,
    }
    return {f"{prefix}{name}": value for name, value in flags.items()}


# ---- a command line's flags ---------------------------------------------------------------------


def written(flags: Flags) -> list[str]:
    """Flags as words; False leaves one out, True writes it bare."""
    found: list[str] = []
    for name, value in flags.items():
        if value is False:
            continue
        found.append(f"--{name}")
        if value is not True:
            found += [str(item) for item in (value if isinstance(value, list) else [value])]
    return found


def given_flags(words: Sequence[str]) -> dict[str, str]:
    """Names of the user's flags, each with its first value, or "".

    Example:
        >>> given_flags(["--vllm.enforce_eager", "--train.ema_beta", "0.9", "--eval.steps=2"])
        {'vllm.enforce_eager': '', 'train.ema_beta': '0.9', 'eval.steps': '2'}
    """
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        following = words[at + 1] if at + 1 < len(words) else "--"
        if not equals:
            value = "" if following.startswith("--") else following
        found[name] = value
    return found


def counted(given: Mapping[str, str], known: str) -> int:
    """The number that the user's flags give, by a shortened name as well; 1 where they don't.

    Raises:
        SettingError: for what is no whole number from 1 on.
    """
    value = next((value for name, value in given.items() if known.startswith(name)), "1")
    if not (value.isascii() and value.isdecimal() and int(value)):
        raise SettingError(f"--{known} must be a whole number from 1 on, got {value!r}")
    return int(value)


def refuse_precision(precision: str) -> None:
    """Refuse what OpenRLHF does not compute in.

    Raises:
        SettingError: naming it.
    """
    if precision != "bfloat16":
        raise SettingError(
            f"OpenRLHF computes in bfloat16 (float32 master weights), not {precision}; set "
            "precision to bfloat16"
        )


def refuse_decided(
    given: Mapping[str, str], decided: Mapping[str, str], refused: Mapping[str, str]
) -> None:
    """Refuse flags that are a setting's, or can't be used; shortened names as well.

    Raises:
        SettingError: naming the flag, and what to set, or why not.
    """
    for name in given:
        for known, setting in decided.items():
            if known.startswith(name):
                raise SettingError(f"the flag --{known} is decided by {setting}; set that instead")
        for known, why in refused.items():
            if known.startswith(name):
                raise SettingError(f"--{known} can't be used: {why}")
