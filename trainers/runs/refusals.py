"""Settings that can't work together, refused before anything is loaded, each by its name.

What a record can refuse by itself it refuses when it is made (:mod:`trainers.rl_config`,
:mod:`trainers.sft`); here is what needs more than one of them, the model's shape or the
questions.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from drv_env.errors import SettingError
from trainers.registry import ADVANTAGES
from trainers.runs.memory import ModelShape
from trainers.runs.playing import Playing
from trainers.runs.run_config import RLRun, Run, SFTRun


def refuse_unusable(run: Run) -> None:
    """What no trainer can do, whatever the model and the data.

    Raises:
        SettingError: naming the setting, and what to do.
    """
    if not run.model.folder:
        raise SettingError("model.folder names no model: a folder as save_pretrained writes it")
    if run.cluster.flags and run.backend != "openrlhf":
        raise SettingError("cluster.flags are for OpenRLHF, but backend is device")
    if run.model.lora.rank and not _installed("peft"):
        raise SettingError("model.lora.rank needs the package peft: pip install 'drv-env[lora]'")
    loop = run.rl if isinstance(run, RLRun) else run.sft if isinstance(run, SFTRun) else None
    name = "rl" if isinstance(run, RLRun) else "sft"
    if loop is not None and loop.precision != type(loop)().precision:
        raise SettingError(f"{name}.precision is said by model.precision; leave it out")


def refuse_unplayable(run: RLRun) -> None:
    """What can't be rolled out and trained on, whatever the model and the questions.

    Raises:
        SettingError: naming the setting, and what to do.
    """
    rl, engine = run.rl, run.engine
    ADVANTAGES[rl.advantages]  # known, or refused
    if rl.rollout.group_size not in (1, rl.group_size):
        raise SettingError(
            f"rl.rollout.group_size is {rl.rollout.group_size}, and rl.group_size decides; "
            "leave it out"
        )
    if rl.rollout.seed is None:
        raise SettingError(
            "rl.rollout.seed must be a number, or a run that was left could not go on as it began"
        )
    if engine.kind == "vllm" and not _installed("vllm"):
        raise SettingError(
            "engine.kind vllm needs the package vllm: pip install 'drv-env[vllm]', or say "
            "transformers"
        )
    if engine.gpu_memory is not None and engine.kind != "vllm":
        raise SettingError(f"engine.gpu_memory goes with engine.kind vllm, not {engine.kind}")
    if run.model.lora.dropout > 0 and run.model.lora.rank:
        raise SettingError(
            f"model.lora.dropout is {run.model.lora.dropout}: reinforcement compares log-probs of "
            "the same weights, which dropout makes noise of; set it to 0"
        )


def refuse_unfit(playing: Playing, shape: ModelShape) -> None:
    """What the model or the questions rule out.

    Raises:
        SettingError: naming the setting, and what to do.
    """
    run = playing.run
    asked = run.rules.max_context
    if asked is not None and shape.positions is not None and asked > shape.positions:
        raise SettingError(
            f"rules.max_context is {asked:,}, but the model has {shape.positions:,} positions; "
            "lower it"
        )
    if shape.dropout > 0:
        raise SettingError(
            f"{run.model.folder}/config.json has a dropout of {shape.dropout}: reinforcement "
            "compares log-probs of the same weights, which dropout makes noise of; set it to 0"
        )
    refuse_attention(run, shape)
    if len(playing.tasks) < run.rl.tasks_per_step:
        raise SettingError(
            f"rl.tasks_per_step is {run.rl.tasks_per_step}, but there are {len(playing.tasks):,} "
            "questions to train on; lower it, or add questions"
        )


def refuse_attention(run: RLRun, shape: ModelShape) -> None:
    """What sliding windows and other attention of the model rule out; all of it in one line.

    Raises:
        SettingError: naming the settings, and what to do.
    """
    rl, found = run.rl, []
    device = run.backend == "device"
    scored = [f"rl.{name}" for name in rl.scored_for if device or name.startswith("gain")]
    if shape.past and scored and rl.scoring != "plain":
        found.append(
            f"{' and '.join(scored)} can't be scored from keys and values that are kept "
            f"(rl.scoring {rl.scoring}): set rl.scoring to plain, one full pass a history"
        )
    if shape.past and device and run.engine.kind == "transformers":
        found.append("engine.kind transformers can't play it: set engine.kind to vllm")
    if found:
        raise SettingError(f"{shape.past}, so that {'; and '.join(found)}")
    if device and rl.packed and shape.packing:
        raise SettingError(f"{shape.packing}, so that rows can't be packed; set rl.packed to false")


def refuse_packing(run: SFTRun, shape: ModelShape) -> None:
    """Packed rows of a model that would see over their ends.

    Raises:
        SettingError: naming the setting.
    """
    if run.backend == "device" and run.sft.packed and shape.packing:
        raise SettingError(
            f"{shape.packing}, so that rows can't be packed; set sft.packed to false"
        )


def balancing_warning(shape: ModelShape) -> Iterator[str]:
    """What the model's own loss would add, and none here does."""
    if shape.balancing:
        yield (
            f"the model's config.json has {shape.balancing}: no such term is added here, the loss "
            "is that of the tokens alone"
        )


def warnings_of(playing: Playing) -> Iterator[str]:
    """What works and may be meant otherwise."""
    run = playing.run
    uncorrected = run.rl.loss.importance_cap is None
    if run.rl.max_staleness and uncorrected:
        yield (
            f"rl.max_staleness is {run.rl.max_staleness}, so rollouts are of older weights, and "
            "nothing corrects for it: set rl.loss.importance_cap, to 2 for instance"
        )
    elif run.engine.kind == "vllm" and uncorrected:
        yield (
            "vLLM's log-probs differ a little from the trainer's: rl.loss.importance_cap, 2 for "
            "instance, corrects for it"
        )
    credit = run.rl.credit
    if credit.format_penalty and not credit.penalty_alone:
        apart = credit.normalisation in ("separate", "scaled_separate")
        if credit.normalisation == "raw_ig":
            yield (
                "under raw_ig the format penalties of a group without other gains are divided by "
                "about 1e-4, the floor of their deviation: set rl.credit.penalty_alone"
            )
        elif apart and not credit.information_gain:
            yield (
                "rl.credit.format_penalty stands among the gains, and without these it normalises "
                "to nothing on every turn but the last: set rl.credit.penalty_alone"
            )
    if playing.run.rl.microbatch_tokens < playing.context and not run.model.gradient_checkpointing:
        yield (
            f"an episode of up to {playing.context:,} tokens is one pass, though "
            f"rl.microbatch_tokens is {run.rl.microbatch_tokens:,}"
        )


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
