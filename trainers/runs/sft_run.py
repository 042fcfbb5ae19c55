"""A run of behaviour cloning from its configuration: everything put together around the loop.

:func:`trainers.sft.train_sft` is the loop.  The rows come from a folder of ``drv data rows``,
or are made of trajectories at the start, in the run's own folder, where a run that goes on
finds them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.engines.checkpoint_check import check_names, check_planned, check_tokenizer
from drv_env.errors import SettingError
from replay.documents import RowSettings
from replay.sources import Passed, open_trajectories
from replay.template import ChatTemplate
from replay.token_store import TokenStore
from replay.token_writer import write_documents
from replay.trajectory import Trajectory
from trainers.agent_file import read_agent
from trainers.commands.agent_setup import refuse_no_model, template_source
from trainers.commands.train_screen import TrainScreen
from trainers.packed_rows import DocumentRows
from trainers.run_folder import ROWS, RunFolder
from trainers.runs.memory import ModelShape, Part, device_memory, training_memory
from trainers.runs.plan import Plan
from trainers.runs.refusals import balancing_warning, refuse_packing, refuse_unusable
from trainers.runs.run_config import SFTRun
from trainers.runs.running import (
    STATE,
    Checkpoints,
    chosen_device,
    how_it_stands,
    ready_model,
    refuse_other_run,
    resolved,
    steps_done,
)
from trainers.sft import SFTStep, train_sft
from trainers.sft_batches import Batches

Say = Callable[[str], None]


def prepare_sft(run: SFTRun, name: str, say: Say) -> SFTJob:
    """A run of behaviour cloning, with its rows, checked without loading the model.

    Args:
        run: the configuration.
        name: the trainer's.
        say: told what is decided without being asked.

    Raises:
        DrvError: naming what can't work.
    """
    refuse_other_run(run, name)
    return planned_sft(run, name, say)


def planned_sft(run: SFTRun, name: str, say: Say) -> SFTJob:
    """The same without a look at an earlier life of the run, for any backend."""
    refuse_unusable(run)
    refuse_no_model(run.model.folder, "model.folder")
    shape = ModelShape.of(run.model.folder, run.model.lora.settings())
    refuse_packing(run, shape)
    source = template_source(run.model.chat_template, lambda _: "model.chat_template")
    make = partial(ChatTemplate.from_folder, run.model.folder, chat_template=source)
    template = make()
    check_tokenizer(run.model.folder, template.pieces.tokenizer, run.model.folder)
    agent = read_agent(run.model.folder)
    data = run.data
    if (data.rows is None) == (not data.trajectories):
        raise SettingError(
            "data needs either rows, a folder made by drv data rows, or trajectories, files of them"
        )
    prompts: set[str] = set()
    if data.rows is None:
        store = _tokenised(run, make, prompts, say)
    else:
        store = TokenStore(data.rows)
        if not store.made_with(template):
            raise SettingError(
                f"data.rows {data.rows} was made with another tokenizer or chat template than "
                f"{run.model.folder}'s; make it again: drv data rows … --chat-template "
                f"{run.model.chat_template} --tokenizer "
                f"{run.model.folder}"
            )
    outside = store.outside(shape.vocabulary)
    if len(outside) == len(store):
        raise SettingError(f"no row can be learnt: {outside[0][1]}")
    if outside:
        say(f"{len(outside):,} rows were left out; the first: {outside[0][1]}")
    longest = int(store.lengths.max())
    if shape.positions is not None and longest > shape.positions:
        raise SettingError(
            f"the longest row has {longest:,} tokens, but the model {shape.positions:,} positions; "
            + (
                "set data.max_tokens"
                if data.rows is None
                else "make rows with a smaller max_tokens"
            )
        )
    if agent is None and len(prompts) == 1:
        agent = {"rules": {"system_prompt": prompts.pop()}}
    return SFTJob(run, name, say, store, shape, agent, frozenset(row for row, _ in outside))


def _tokenised(
    run: SFTRun, make: Callable[[], ChatTemplate], prompts: set[str], say: Say
) -> TokenStore:
    """The run's trajectories in tokens; their system prompts are put into ``prompts``."""
    data, passed = run.data, Passed()

    found = open_trajectories(data.trajectories, passed)

    def whole() -> Iterator[Trajectory]:
        for item in found:
            if item.broken:
                passed.add(f"task {item.task.id}: the episode broke")
                continue
            first = item.opening[0]
            prompts.add(first["content"] if first["role"] == "system" else "")
            yield item

    settings = RowSettings(max_tokens=data.max_tokens, cut=data.cut)
    folder = run.out / ROWS
    counts = write_documents(
        whole(), folder, make, settings, workers=data.workers, called="data.max_tokens"
    )
    say(f"{counts.documents:,} trajectories tokenised into {folder}")
    if passed.count:
        say(f"{passed.count:,} were passed over; the first: {passed.reasons[0]}")
    return TokenStore(folder)


@dataclass(frozen=True)
class SFTJob:
    """A run that is ready to start.

    Attributes:
        config: what was asked for.
        name: the trainer's.
        say: told a line.
        store: the rows.
        shape: of the model.
        agent: how the model plays, where that is known.
        left_out: numbers of the rows that the model's vocabulary doesn't hold.
    """

    config: SFTRun
    name: str
    say: Say
    store: TokenStore
    shape: ModelShape
    agent: Any
    left_out: frozenset[int] = frozenset()

    @cached_property
    def _parts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the rows to learn, and of those held out."""
        order = np.random.default_rng([self.config.sft.seed, 7]).permutation(len(self.store))
        order = order[~np.isin(order, list(self.left_out))]
        count = round(self.config.data.held_out * len(order))
        if self.config.data.held_out and not 1 <= count < len(order):
            raise SettingError(
                f"data.held_out {self.config.data.held_out} of {len(order):,} rows holds out "
                f"{count:,} and leaves {len(order) - count:,}; there must be some of both"
            )
        return np.sort(order[count:]), np.sort(order[:count])

    @cached_property
    def _batches(self) -> Batches:
        sft, learnt = self.config.sft, self._parts[0]
        return Batches(
            DocumentRows(self.store, learnt),
            epochs=sft.epochs,
            batch_size=sft.batch_size,
            batch_tokens=sft.batch_tokens,
            seed=sft.seed,
            weights=self.store.weights[learnt],
        )

    @property
    def _steps(self) -> int:
        return min(len(self._batches), self.config.sft.max_steps or len(self._batches))

    @cached_property
    def plan(self) -> Plan:
        """Rows, tokens, steps, memory."""
        sft, (learnt, held) = self.config.sft, self._parts
        weights = self.store.weights[learnt]
        tokens = float((self._batches.lengths * weights).sum())
        agent = float((self._batches.learnt * weights).sum())
        steps, done = self._steps, steps_done(self.config)
        size = f"{self.shape.parameters:,} parameters"
        if self.shape.adapters:
            size += f", {self.shape.adapters:,} trained"
        batch = f"{sft.batch_size:,} rows"
        if sft.batch_tokens is not None:
            batch = f"up to {sft.batch_tokens:,} tokens"
        rows = [
            ("model", f"{self.config.model.folder}, {size}"),
            ("rows", f"{len(learnt):,} to learn, {len(held):,} held out"),
            ("rows an epoch, with their weights", f"{weights.sum():,.0f}"),
            ("tokens an epoch", f"{tokens:,.0f}, of them learnt {agent:,.0f}"),
            ("longest row", f"{int(self.store.lengths.max()):,} tokens"),
            ("a step", batch),
            ("epochs, steps", f"{sft.epochs:,}, {steps:,}" + (f", {done:,} done" if done else "")),
            ("learning rate", sft.told(steps)),
            ("folder", str(self.config.out)),
        ]
        device = chosen_device(self.config.model)
        check_planned(self.config.model.folder)
        return Plan(
            f"{self.name}: the plan",
            rows,
            self.memory(),
            device_memory(device),
            list(balancing_warning(self.shape)),
        )

    def memory(self) -> list[Part]:
        """Of the trainer."""
        longest = int(self.store.lengths.max())
        tokens = longest * self.config.sft.batch_size
        if self.config.sft.microbatch_tokens is not None:
            tokens = max(longest, min(tokens, self.config.sft.microbatch_tokens))
        return training_memory(self.shape, self.config.model.settings(), tokens)

    def run(self) -> None:
        """Train, from the start or from where it was left; see :class:`Job`."""
        config, (learnt, held) = self.config, self._parts
        done = steps_done(config)
        check_names(config.model.folder)
        with ExitStack() as stack:
            folder = RunFolder(config.out, resolved(config, self.name), done or None)
            stack.callback(folder.close)
            model = ready_model(config.model, config.sft.seed)
            screen = stack.enter_context(TrainScreen(self.name, self._steps, done))
            checkpoints = Checkpoints(folder, config, self.agent)

            def on_step(step: SFTStep) -> None:
                metrics = step_metrics(step)
                folder.log("sft", step.step, metrics)
                screen.step(step.step, metrics)
                checkpoints.after(step.step, model)

            try:
                train_sft(
                    model,
                    DocumentRows(self.store, learnt),
                    replace(config.sft, precision=config.model.precision),
                    on_step,
                    weights=self.store.weights[learnt],
                    held_out=DocumentRows(self.store, held) if len(held) else (),
                    state=config.out / STATE,
                )
            except KeyboardInterrupt:
                screen.say(how_it_stands(config))
                raise
            final = checkpoints.final(model)
        self.say(f"done: {final}; metrics: {config.out}/metrics.jsonl")


def step_metrics(step: SFTStep) -> dict[str, float]:
    """A step's measurements by name; what was not measured is left out."""
    found = {
        "loss": step.loss,
        "learning_rate": step.learning_rate,
        "grad_norm": step.grad_norm,
        "tokens": float(step.tokens),
        "learnt_tokens": float(step.learnt),
        "seconds": step.seconds,
        "tokens_per_s": step.tokens_per_s,
    }
    if step.held_out_loss is not None:
        found["held_out_loss"] = step.held_out_loss
    return found
