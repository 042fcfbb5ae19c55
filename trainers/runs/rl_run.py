"""A run of reinforcement from its configuration: everything put together around the loop.

:func:`trainers.rl.train_rl` is the loop.  Here are the model, the engine with its own copy of
the weights, the game, the run's folder, evaluation on held-out questions, checkpoints and
the progress on the screen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property

from agents.engines.checkpoint_check import check_names, check_planned
from agents.meter import Meter
from replay.store import write_trajectories
from replay.trajectory import Trajectory
from trainers.commands.train_screen import TrainScreen
from trainers.rl import RLStep, train_rl
from trainers.rl_metrics import rollout_metrics
from trainers.rollouts import play_all
from trainers.run_folder import RunFolder
from trainers.runs.at_work import AtWork, at_work
from trainers.runs.memory import (
    ModelShape,
    Part,
    device_memory,
    engine_memory,
    training_memory,
    weight_bytes,
)
from trainers.runs.plan import Plan
from trainers.runs.playing import Playing, engine_dtype, plan_playing
from trainers.runs.refusals import (
    balancing_warning,
    refuse_unfit,
    refuse_unplayable,
    refuse_unusable,
    warnings_of,
)
from trainers.runs.run_config import RLRun
from trainers.runs.running import (
    STATE,
    Checkpoints,
    chosen_device,
    how_it_stands,
    refuse_other_run,
    resolved,
    steps_done,
)
from trainers.shortening import ShorteningWatch

Say = Callable[[str], None]


def prepare_rl(run: RLRun, name: str, say: Say) -> RLJob:
    """A run of reinforcement, checked as far as it can be without loading the model.

    Args:
        run: the configuration.
        name: the trainer's.
        say: told what is decided without being asked.

    Raises:
        DrvError: naming what can't work.
    """
    playing, shape = planned_rl(run, say)
    refuse_other_run(run, name)
    return RLJob(run, name, say, playing, shape)


def planned_rl(run: RLRun, say: Say) -> tuple[Playing, ModelShape]:
    """Who plays what, and the model's shape; what can't work is refused, on any backend.

    Raises:
        DrvError: naming what can't work.
    """
    refuse_unusable(run)
    refuse_unplayable(run)
    playing = plan_playing(run, say)
    shape = ModelShape.of(run.model.folder, run.model.lora.settings())
    refuse_unfit(playing, shape)
    return playing, shape


def plan_rows(run: RLRun, playing: Playing) -> list[tuple[str, str]]:
    """What will be done, on any backend."""
    rl, count = run.rl, len(playing.tasks)
    rollouts = rl.tasks_per_step * rl.group_size
    updates = min(rl.minibatches, rollouts)
    return [
        ("questions to train on", f"{count:,}"),
        ("tools, outcome", f"{playing.tools.kind}, {run.outcome}"),
        ("rollouts a step", f"{rl.tasks_per_step:,} × {rl.group_size:,} = {rollouts:,}"),
        ("steps", f"{rl.steps:,}"),
        ("updates", f"{updates:,} a step, {updates * rl.steps:,} in all"),
        ("learning rate", rl.told(rl.steps)),
        ("passes over the questions", f"{rl.steps * rl.tasks_per_step / count:.3g}"),
        (
            "context of an episode",
            f"{playing.context:,} tokens, the longest opening {playing.opening:,}, a turn up to "
            f"{playing.sampling.max_tokens:,}",
        ),
        ("tokens a step, at most", f"{rollouts * playing.context:,}"),
        ("folder", str(run.out)),
    ]


@dataclass(frozen=True)
class RLJob:
    """A run that is ready to start.

    Attributes:
        config: what was asked for.
        name: the trainer's.
        say: told a line.
        playing: agent, tools and questions.
        shape: of the model.
    """

    config: RLRun
    name: str
    say: Say
    playing: Playing
    shape: ModelShape

    @cached_property
    def plan(self) -> Plan:
        """Questions, rollouts, updates, the most tokens, memory."""
        config, held = self.config, self.config.evaluation
        done = steps_done(config)
        evaluation = "none"
        if held.every:
            questions = f"{len(self.playing.held_out):,} questions × {held.samples:,}"
            evaluation = f"every {held.every:,} steps on {questions}"
        rows = [
            ("model", f"{config.model.folder}, {self._sizes()}"),
            ("engine", f"{config.engine.kind}, {self.playing.parallel:,} episodes at once"),
            *plan_rows(config, self.playing),
            ("evaluation", evaluation),
        ]
        if done:
            rows.append(("done already", f"{done:,} steps"))
        device = chosen_device(self.config.model)
        warnings = [*warnings_of(self.playing), *balancing_warning(self.shape)]
        check_planned(config.model.folder)
        return Plan(f"{self.name}: the plan", rows, self.memory(), device_memory(device), warnings)

    def _sizes(self) -> str:
        told = f"{self.shape.parameters:,} parameters"
        return told + (f", {self.shape.adapters:,} trained" if self.shape.adapters else "")

    def memory(self) -> list[Part]:
        """Of trainer and engine together, where both are on the device."""
        config, playing, shape = self.config, self.playing, self.shape
        settings = config.model.settings()
        rl = config.rl
        update = -(-rl.tasks_per_step * rl.group_size // rl.minibatches) * playing.context
        tokens = max(min(rl.microbatch_tokens, update), playing.context)
        parts = training_memory(shape, settings, tokens)
        if config.rl.loss.kl_weight > 0:
            parts.insert(1, Part("reference", weight_bytes(shape, settings), "as the weights"))
        if config.engine.kind == "vllm":
            share = config.engine.gpu_memory or 0.9
            size = int(share * device_memory(chosen_device(config.model)))
            parts.append(Part("vLLM", size, f"engine.gpu_memory, {share:.0%} of the device"))
            return parts
        size = 2 if engine_dtype(config.engine, config.model.precision) == "bfloat16" else 4
        return [*parts, *engine_memory(shape, size, playing.agent.parallel, playing.context)]

    def run(self) -> None:
        """Train, from the start or from where it was left; see :class:`Job`."""
        config, playing = self.config, self.playing
        done = steps_done(config)
        check_names(config.model.folder)
        with ExitStack() as stack:
            folder = RunFolder(config.out, resolved(config, self.name), done or None)
            stack.callback(folder.close)
            work = stack.enter_context(at_work(playing))
            meter = Meter()
            screen = stack.enter_context(TrainScreen(self.name, config.rl.steps, done, meter))
            around = _Around(self, work, folder, screen)
            if config.evaluation.every and not done:
                around.evaluate(0)
            try:
                train_rl(
                    work.model,
                    work.engine,
                    work.env,
                    playing.template,
                    playing.tasks,
                    replace(
                        config.rl,
                        sampling=playing.sampling,
                        rollout=playing.rollout,
                        precision=config.model.precision,
                    ),
                    around.step,
                    state=config.out / STATE,
                    meter=meter,
                )
            except KeyboardInterrupt:
                screen.say(how_it_stands(config))
                raise
            final = around.checkpoints.final(work.model)
        self.say(f"done: {final} (drv eval, drv ask play it); metrics: {config.out}/metrics.jsonl")


class _Around:
    """What happens around each step of the loop."""

    def __init__(self, job: RLJob, work: AtWork, folder: RunFolder, screen: TrainScreen) -> None:
        self.checkpoints = Checkpoints(folder, job.config, job.playing.described())
        self._job, self._work = job, work
        self._folder, self._screen = folder, screen
        self._shortening = ShorteningWatch(job.config.rl.credit)
        for earlier in folder.logged("rl"):
            self._shortening.step(earlier)  # said in an earlier life

    def step(self, step: RLStep) -> None:
        """Keep what a step left: metrics, trajectories, perhaps evaluation and checkpoint."""
        config = self._job.config
        self._keep(f"rl-{step.step:04d}", step.trajectories)
        self._folder.log("rl", step.step, step.metrics)
        self._screen.step(step.step, step.metrics)
        warning = self._shortening.step(step.metrics)
        if warning is not None:
            self._screen.say(warning)
        every = config.evaluation.every
        if every and (step.step % every == 0 or step.step == config.rl.steps):
            self.evaluate(step.step)
            if config.rl.rollouts == "vector":
                # what the engine remembers of other episodes would change the last bits of the
                # next ones, and a run that goes on from here remembers none
                self._work.give_weights()
        self.checkpoints.after(step.step, self._work.model)

    def evaluate(self, step: int) -> None:
        """Play the held-out questions, and log how that went."""
        self._screen.evaluating()
        trajectories = self._play(step)
        self._keep(f"evaluation-{step:04d}", trajectories)
        if all(item.broken for item in trajectories):
            self._screen.say(f"all held-out episodes broke; the first: {trajectories[0].error}")
            return
        metrics = rollout_metrics(trajectories)
        self._folder.log("evaluation", step, metrics)
        self._screen.evaluated(step, metrics)

    def _play(self, step: int) -> list[Trajectory]:
        playing, rl = self._job.playing, self._job.config.rl
        samples = self._job.config.evaluation.samples
        settings = replace(
            playing.rollout,
            group_size=samples,
            stragglers="wait",
            turn_jitter=0,
            seed=rl.rollout.seed,
        )
        return play_all(
            rl.rollouts,
            self._work.env,
            self._work.engine,
            playing.template,
            playing.held_out,
            playing.sampling,
            settings,
            {"phase": "evaluation", "step": step},
        )

    def _keep(self, name: str, trajectories: list[Trajectory]) -> None:
        write_trajectories(self._folder.trajectories / f"{name}.parquet", trajectories)
