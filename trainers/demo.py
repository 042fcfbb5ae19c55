"""The whole path once, small: expert, behaviour cloning, IGPO, evaluation.

A scripted expert with flaws plays an invented web; a model of 156 thousand parameters is
cloned from it and then trained by reinforcement on its own rollouts.  Nothing is
prepared: the web, the tokenizer and the model are made from the seed.  It prints what it
measures.
"""

from __future__ import annotations

import copy
import dataclasses
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from agents.engines.base import Sampling
from agents.engines.transformers import TransformersEngine
from agents.evaluate import Evaluation, evaluate
from agents.vector_rollout import VectorEnv, rollout_agents, rollout_vector
from drv_env import ENV_ID, background
from drv_env.episode import Rules
from drv_env.errors import SettingError
from drv_env.tasks import Task
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import Expert, Noise, WorldRecipe, split
from replay.chat_templates import QWEN3_THINKING
from replay.counter import TemplateCounter
from replay.sft_rows import transcribe
from replay.store import write_trajectories
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from trainers.advantages import GRPO, IGPO
from trainers.checkpoint import save_model
from trainers.demo_config import DemoConfig
from trainers.rl import RLConfig, RLStep, train_rl
from trainers.rows import Row
from trainers.run_folder import RunFolder
from trainers.sft import SFTConfig, SFTStep, train_sft
from trainers.tiny import IM_END, TinySize, build_model, build_tokenizer
from trainers.warmup import CopyConfig, warm_up_copying

TURN_TOKENS = 48
"""The most tokens of one turn; the expert's longest has 24."""
PARALLEL = 64
"""Episodes at once."""
_SHOWN: dict[str, Any] = {"results": 1, "fields": ("url",), "evidence_words": 8}
"""What the tools show: little, for a small context."""
_SAMPLED = ("temperature", "top_p", "top_k", "presence_penalty", "stop")
_COUNTS = (
    "worlds",
    "expert_episodes",
    "copy_steps",
    "sft_epochs",
    "rl_steps",
    "questions",
    "threads",
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage's evaluations on the held-out questions."""

    name: str
    sampled: Evaluation
    greedy: Evaluation


def run_demo(config: DemoConfig, console: Console | None = None) -> list[Stage]:
    """Run the demo and print its table.

    Returns:
        The evaluations: untrained, cloned, and after reinforcement.

    Raises:
        SettingError: for a number below 1, or another folder than a run's.
    """
    for name in _COUNTS:
        if getattr(config, name) < 1:
            raise SettingError(f"{name} must be at least 1, got {getattr(config, name)}")
    console = console or Console()
    torch.set_num_threads(config.threads)
    game = _Game.of(config)
    run = RunFolder(config.out, {"demo": config})
    console.print(
        f"{len(game.train)} questions to train on, {len(game.held_out)} held out, in "
        f"{config.worlds} webs of {len(game.recipes[0].build().pages)} pages each"
    )
    engine: TransformersEngine | None = None
    try:
        with _progress(console) as track:
            expert = _expert_trajectories(game, config, track)
            write_trajectories(run.trajectories / "expert.parquet", expert)
            tokenizer, template, model = _new_model(game, expert, config)
            game.start(tokenizer, template)
            engine = TransformersEngine(
                copy.deepcopy(model),
                slots=PARALLEL,
                max_context=TinySize().context,
                seed=config.seed,
            )
            stages = [_evaluate("untrained", game, engine, config, run, track)]

            _warm_up(model, tokenizer, config, run, track)
            _clone(model, expert, template, config, run, track)
            background.run(engine.update_weights(model))
            stages.append(_evaluate("SFT", game, engine, config, run, track))

            _reinforce(model, engine, game, config, run, track)
            name = config.algorithm.upper()
            stages.append(_evaluate(name, game, engine, config, run, track))
            final = run.checkpoints / "final"
            save_model(final, model, tokenizer, QWEN3_THINKING, game.described())
    finally:
        if engine is not None:
            background.run(engine.close())
        run.close()
    console.print(_table(stages, config))
    console.print(f"Trajectories, metrics and checkpoint: {config.out}")
    return stages


# ---- the game -------------------------------------------------------------------------


class _Game:
    """The webs, their questions, and the envs to play them in."""

    def __init__(self, recipes: Sequence[WorldRecipe], config: DemoConfig) -> None:
        self.recipes = list(recipes)
        parts = split(self.recipes)
        rng = random.Random(f"demo-{config.seed}")
        self.train: list[Task] = rng.sample(parts["train"], len(parts["train"]))
        self.held_out: list[Task] = rng.sample(parts[config.part], config.questions)
        self.tools = OfflineTools(self.recipes, **_SHOWN)
        self.rules = Rules(system_prompt="", max_turns=8)
        self.expert_envs = self._envs(self.rules)
        self.envs: VectorEnv
        self.template: ChatTemplate

    @classmethod
    def of(cls, config: DemoConfig) -> _Game:
        return cls([WorldRecipe(1000 * config.seed + n) for n in range(config.worlds)], config)

    def start(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.tokenizer, self.template = tokenizer, template
        bounded = dataclasses.replace(
            self.rules, max_context=TinySize().context, max_turn_tokens=TURN_TOKENS
        )
        self.envs = self._envs(bounded, TemplateCounter(template))

    def _envs(self, rules: Rules, counter: TemplateCounter | None = None) -> VectorEnv:
        return gymnasium.make_vec(
            ENV_ID,
            num_envs=PARALLEL,
            tasks=self.train,
            tools=self.tools,
            rules=rules,
            counter=counter,
        )

    def described(self) -> dict[str, Any]:
        """How the model plays, for whoever plays it later; see :mod:`trainers.agent_file`."""
        sampling = self.sampling(1.0)
        return {
            "rules": {
                "system_prompt": self.rules.system_prompt,
                "max_turns": self.rules.max_turns,
                "max_context": TinySize().context,
                "max_turn_tokens": TURN_TOKENS,
            },
            "sampling": {name: getattr(sampling, name) for name in _SAMPLED},
            "offline": {"worlds": tuple(recipe.seed for recipe in self.recipes), **_SHOWN},
        }

    def sampling(self, temperature: float) -> Sampling:
        return Sampling(TURN_TOKENS, temperature=temperature, stop_ids=self.template.stop_ids)

    def play(
        self,
        engine: TransformersEngine,
        tasks: Sequence[Task],
        temperature: float,
        label: dict[str, Any],
        on_turns: Callable[[int, int], None],
    ) -> list[Trajectory]:
        return rollout_vector(
            self.envs, engine, self.template, tasks, self.sampling(temperature), label, on_turns
        )


# ---- phases ---------------------------------------------------------------------------

Track = Callable[[str, float], Callable[[float, str], None]]


@contextmanager
def _progress(console: Console) -> Iterator[Track]:
    """Bars: ``track(name, total)`` gives ``update(done, note)``."""
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=12),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def track(name: str, total: float) -> Callable[[float, str], None]:
            bar = progress.add_task(name, total=total, note="")
            started, over = time.monotonic(), False

            def update(done: float, note: str = "") -> None:
                nonlocal over
                progress.update(bar, completed=done, note=note)
                if not console.is_terminal and done >= total and note and not over:
                    over = True  # a log gets one line a phase
                    console.print(f"{name:<24}{time.monotonic() - started:5.0f} s  {note}")

            return update

        yield track


def _expert_trajectories(game: _Game, config: DemoConfig, track: Track) -> list[Trajectory]:
    rng = random.Random(f"expert-{config.seed}")
    tasks = rng.choices(game.train, k=config.expert_episodes)
    worlds = {recipe.name: recipe.build() for recipe in game.recipes}
    update = track("expert plays", len(tasks))
    found = rollout_agents(
        game.expert_envs,
        lambda task: Expert(task, worlds[str(task.world)], rng, Noise()),
        tasks,
        {"agent": "expert", "seed": config.seed},
        lambda over, playing: update(over, ""),
    )
    figures = evaluate(found)
    update(len(tasks), f"success {figures.success:.0%}, {figures.turns:.1f} turns")
    return found


def _new_model(
    game: _Game, expert: Sequence[Trajectory], config: DemoConfig
) -> tuple[Tokenizer, ChatTemplate, PreTrainedModel]:
    texts = [
        text
        for item in expert[:500]
        for turn in item.turns
        for text in (turn.text, turn.observation or "")
    ]
    questions = [item.task.question for item in expert[:500]]
    tokenizer = build_tokenizer([*questions, *texts], game.recipes[0].build().kinds)
    template = ChatTemplate(tokenizer, QWEN3_THINKING, {"eos_token": IM_END})
    return tokenizer, template, build_model(tokenizer, config.seed)


def _warm_up(
    model: PreTrainedModel, tokenizer: Tokenizer, config: DemoConfig, run: RunFolder, track: Track
) -> None:
    settings = CopyConfig(max_steps=config.copy_steps, seed=config.seed)
    update = track("learns to copy", 1.0)

    def on_step(step: int, accuracy: float) -> None:
        over = accuracy >= settings.accuracy or step == settings.max_steps
        done = 1.0 if over else accuracy / settings.accuracy
        update(done, f"step {step}, accuracy {accuracy:.0%}")
        run.log("copy", step, {"accuracy": accuracy})

    warm_up_copying(model, tokenizer.get_vocab_size(), settings, on_step)


def _clone(
    model: PreTrainedModel,
    expert: Sequence[Trajectory],
    template: ChatTemplate,
    config: DemoConfig,
    run: RunFolder,
    track: Track,
) -> None:
    transcripts = [transcribe(trajectory, template) for trajectory in expert]
    rows = [Row(transcript.ids, transcript.mask()) for transcript in transcripts]
    update = track("SFT on the expert", 1.0)

    def on_step(step: SFTStep) -> None:
        update(step.step / step.steps, f"step {step.step}/{step.steps}, loss {step.loss:.3f}")
        run.log("sft", step.step, {"loss": step.loss, "learning_rate": step.learning_rate})

    train_sft(model, rows, SFTConfig(epochs=config.sft_epochs, seed=config.seed), on_step)


def _reinforce(
    model: PreTrainedModel,
    engine: TransformersEngine,
    game: _Game,
    config: DemoConfig,
    run: RunFolder,
    track: Track,
) -> None:
    settings = RLConfig(
        credit=IGPO if config.algorithm == "igpo" else GRPO,
        steps=config.rl_steps,
        learning_rate=config.rl_learning_rate,
        sampling=game.sampling(1.0),
        gain_by="engine",  # whose cache still holds the histories
        seed=config.seed,
    )
    update = track(f"{config.algorithm.upper()} on own rollouts", config.rl_steps)

    def on_step(step: RLStep) -> None:
        figures = step.metrics
        note = f"step {step.step}/{config.rl_steps}, success {figures['success']:.0%}"
        if "information_gain" in figures:
            note += f", gain {figures['information_gain']:+.2f}"
        update(step.step, note)
        run.log("rl", step.step, figures)
        write_trajectories(run.trajectories / f"rl-{step.step:04d}.parquet", step.trajectories)

    train_rl(model, engine, game.envs, game.template, game.train, settings, on_step)


def _evaluate(
    name: str,
    game: _Game,
    engine: TransformersEngine,
    config: DemoConfig,
    run: RunFolder,
    track: Track,
) -> Stage:
    update = track(f"evaluation: {name}", 2 * len(game.held_out))
    figures: list[Evaluation] = []
    for way, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        done = len(game.held_out) * len(figures)
        label = {"agent": name, "way": way, "seed": config.seed}
        found = game.play(
            engine,
            game.held_out,
            temperature,
            label,
            partial(_count, update, done),
        )
        write_trajectories(run.trajectories / f"eval-{name.lower()}-{way}.parquet", found)
        figures.append(evaluate(found))
    stage = Stage(name, *figures)
    update(
        2 * len(game.held_out),
        f"success {stage.sampled.success:.0%} sampled, {stage.greedy.success:.0%} greedy",
    )
    run.log(
        "evaluation",
        int(engine.weight_version),
        {
            f"{way}_{key}": value
            for way, item in (("sampled", stage.sampled), ("greedy", stage.greedy))
            for key, value in (
                ("success", item.success),
                ("standard_error", item.standard_error),
                ("well_formed", item.well_formed),
                ("turns", item.turns),
            )
        },
    )
    return stage


def _count(update: Callable[[float, str], None], before: int, over: int, playing: int) -> None:
    update(before + over, "")


def _table(stages: Sequence[Stage], config: DemoConfig) -> Table:
    table = Table(
        title=f"Success on {config.questions} held-out questions, seed {config.seed}",
        caption="± standard error; visits: share of visits among tool calls, sampled",
    )
    table.add_column("agent")
    for column in ("sampled", "greedy", "well formed", "turns", "visits"):
        table.add_column(column, justify="right", no_wrap=True)
    for stage in stages:
        ratio = stage.sampled.visit_ratio
        table.add_row(
            stage.name,
            f"{stage.sampled.success:.3f} ± {stage.sampled.standard_error:.3f}",
            f"{stage.greedy.success:.3f} ± {stage.greedy.standard_error:.3f}",
            f"{stage.sampled.well_formed:.1%}",
            f"{stage.sampled.turns:.2f}",
            "–" if ratio != ratio else f"{ratio:.1%}",
        )
    return table
