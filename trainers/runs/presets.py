"""Settings that belong together, by name: ``preset: paper-rl`` in a file, or ``--preset``.

A preset stands over the trainer's defaults and under the file and the command line.  Every
published setting is here with its source, also where it equals a default of ours: a default
may change, what was published does not.  Sources: the report (DR-Venus, arXiv 2604.19859),
its release (inclusionAI/DR-Venus, master at 60131410), IGPO (arXiv 2510.14967).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drv_env.errors import SettingError

PAPER_SFT: Mapping[str, Any] = {
    "model": {
        # release: float32 weights, computed in bfloat16; gradient checkpointing; all weights
        "precision": "bfloat16",
        "gradient_checkpointing": True,
    },
    "data": {
        "max_tokens": 200_000,  # report, SFT: maximum length; its script's own default is 32,768
        "cut": "right",  # release: right truncation
    },
    "sft": {
        "epochs": 1,  # report, SFT
        "batch_size": 32,  # report, SFT: global batch
        # train_sft.sh and verl/trainer/config/sft_trainer.yaml of the release
        "learning_rate": 1e-5,
        "schedule": "cosine",
        "warmup_share": 0.1,
        "betas": (0.9, 0.95),
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "aggregation": "row_mean",  # release: mean over the tokens of a pass, which is one row
        # micro-batch 1: one row a pass, here as many as fit into one row of the longest
        "microbatch_tokens": 200_000,
        "packed": True,
    },
}
"""DR-Venus-4B-SFT, from Qwen3-4B-Thinking-2507 on 18,745 resampled trajectories.

Published and not a setting here: 8 × A100, sequence parallel 8 (``backend: openrlhf`` has it);
rows in the order of their file (docs/paper.md).
"""

PAPER_RL: Mapping[str, Any] = {
    "model": {
        "precision": "bfloat16",  # release: float32 weights, computed in bfloat16
        "gradient_checkpointing": True,  # release
    },
    "rules": {
        "max_context": 261_000,  # report, RL: model context (prompt 246,000 and an answer)
        "max_turn_tokens": 8_192,  # report, RL: tokens a turn
        "max_turns": 200,  # report, RL; train_igpo.sh
        "count_forced_turn": True,  # release: the 200th turn is the one that must answer
        "max_unreadable": 0,  # release: turns that can't be read cost a turn and nothing else
    },
    "tools": {"kind": "live"},  # report: Serper, Jina Reader and a summarising model
    "outcome": "judge",  # report, RL: outcome by an LLM judge
    "engine": {"kind": "vllm", "parallel": 128},  # report: vLLM; 16 × 8 rollouts at once
    "rl": {
        "advantages": "credit",
        "credit": {
            "assignment": "segment",  # release; the report's equations are "turn"
            "normalisation": "scaled_separate",  # release: INFO_GAIN_NORM_MODE
            "baseline": "mean",  # report: (r − μ) / σ within the group
            "std_norm": True,
            "gamma": 0.95,  # report, RL
            "ig_weight": 1.0,  # release: IG_WEIGHT
            "outcome_weight": 1.0,  # release: use_curriculum is off
            "adaptive_gamma_min_weight": 0.0,
            "format_penalty": 1.0,  # report, RL: λ; release: FORMAT_PENALTY_SCALE
            "penalty_alone": False,  # release: turns before a malformed one share its penalty
            "scale_floor": 0.3,  # report, IG-Scale: η
            "scale_max": 10.0,  # report, IG-Scale
            # δ of the IG scale is 1e-6 as in the release (trainers.advantages); the report's 1e-8
        },
        "gain": {
            "tools": ("visit",),  # release: IG_TOOL_FILTER; report: browse-aware assignment
            "kind": "log_prob_diff",  # release: INFO_GAIN_TYPE
            "answers": "first",  # release: of several gold answers the first
            "failed": True,  # release: after every call of the tool, whatever it gave
            # release: behind the thought that the template has opened
            "probe": "Now there's enough information to answer\n</think>\n<answer>\n",
            "closed": True,  # release: the gold's tokens are found before "\n</answer>"
        },
        "tasks_per_step": 16,  # report, RL: questions a step
        "group_size": 8,  # report, RL: rollouts a question
        "minibatches": 1,  # release: one update a rollout batch (mini-batch 128)
        "learning_rate": 1e-6,  # report, RL; train_igpo.sh
        # the defaults of the release's verl (config/optim/fsdp.yaml, config/actor/dp_actor.yaml)
        "schedule": "constant",
        "warmup_steps": 0,
        "betas": (0.9, 0.999),
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "loss": {
            "clip_low": 0.2,  # release: ε
            "clip_high": 0.2,  # release: ε
            "dual_clip": 3.0,  # release: clip_ratio_c
            "entropy_weight": 0.0,  # release: entropy_coeff
            "aggregation": "rollout_mean",  # IGPO's objective, as GRPO's
            "kl_weight": 0.001,  # release: in the loss
            "kl_estimator": "k3",  # release
            # not published: vLLM's log-probs are not the trainer's to the last bit
            "importance_cap": 2.0,
        },
        "drop_silent": "none",  # report: the mean is over all G rollouts
        "rollouts": "async",
        "rollout": {
            "stragglers": "ask",  # release: ASYNC_COMPLETION_CUTOFF
            "straggler_share": 0.9,
            "turn_jitter": 5,  # release: int(random() * 10 - 5), which is 196 to 204 turns
        },
        "microbatch_tokens": 261_000,
        "packed": True,
    },
}
"""DR-Venus-4B-RL, from DR-Venus-4B-SFT on 1,000 questions of REDSearcher_RL_1K.

Published and not a setting here:

- top-p 0.95 while training: log-probs would be of another distribution than the trainer's
  raw ones, so rollouts to train on are sampled at temperature 1 (as published) alone, and
  :class:`~trainers.rl_config.RLConfig` refuses the rest;
- 16 × A100 with FSDP: ``backend: openrlhf``;
- steps: what was published is the data, 1,000 questions; ``rl.steps`` is yours.
"""

CPU_SMALL: Mapping[str, Any] = {
    "engine": {"kind": "transformers", "parallel": 64},
    "evaluation": {"every": 10, "questions": 64},
    "rl": {
        "steps": 20,
        "tasks_per_step": 8,
        "group_size": 8,
        "learning_rate": 3e-4,
        "microbatch_tokens": 8192,
        "save_every": 5,
    },
}
"""A checkpoint of ``drv demo`` trained further, on two cores in some minutes."""

PRESETS: dict[str, Mapping[str, Any]] = {
    "paper-sft": PAPER_SFT,
    "paper-rl": PAPER_RL,
    "cpu-small": CPU_SMALL,
}


def preset(name: str, file: str | Path | None = None) -> Mapping[str, Any]:
    """The settings of a preset.

    Args:
        name: its name.
        file: the one that names it, for errors; none of the command line.

    Raises:
        SettingError: when there is none of that name.
    """
    if name not in PRESETS:
        where = "" if file is None else f"{file}: "
        raise SettingError(f"{where}there is no preset {name!r}, only {', '.join(PRESETS)}")
    return PRESETS[name]
