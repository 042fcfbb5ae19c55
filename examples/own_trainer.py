"""A trainer of your own: play, keep what was right, learn to do that, play again.

This is behaviour cloning of the model's own successes (STaR, arXiv 2203.14465).  All that
``drv train`` does for the built-in trainers it does for this one: settings from file and
command line, the plan, refusals, model, engine and game.

    cd examples && drv train own-successes --config configs/own_trainer.yaml
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from agents.vector_rollout import rollout_vector
from drv_env.task_order import TaskOrder
from trainers.rows import Row
from trainers.run_folder import RunFolder
from trainers.runs.at_work import at_work
from trainers.runs.plan import Plan
from trainers.runs.rl_run import RLJob, prepare_rl
from trainers.runs.run_config import RLRun
from trainers.runs.running import Checkpoints
from trainers.runs.trainer_registry import Trainer, add_trainer
from trainers.sft import SFTConfig, train_sft


@dataclass(frozen=True, kw_only=True)
class OwnSuccesses(RLRun):
    """Settings: those of reinforcement, and how the successes are learnt.

    Of the former it uses model, tasks, tools, rules, outcome and engine, and of ``rl`` steps,
    tasks_per_step, group_size and seed.  It keeps no state, and begins anew each time.

    Attributes:
        sft: of each step's learning.
    """

    sft: SFTConfig = field(default_factory=lambda: SFTConfig(learning_rate=1e-4, warmup_steps=0))


@dataclass(frozen=True)
class Job:
    """What ``drv train`` asks for: the plan, and to run."""

    inner: RLJob
    say: Callable[[str], None]

    @property
    def plan(self) -> Plan:
        """As reinforcement's, whose rollouts it makes."""
        return self.inner.plan

    def run(self) -> None:
        """Train."""
        run, playing = self.inner.config, self.inner.playing
        tasks = TaskOrder(playing.tasks, run.rl.seed)
        folder = RunFolder(run.out, {"trainer": "own-successes", "settings": run})
        with at_work(playing) as work:
            for step in range(1, run.rl.steps + 1):
                chosen = [next(tasks) for _ in range(run.rl.tasks_per_step)]
                found = rollout_vector(
                    work.env,
                    work.engine,
                    playing.template,
                    [task for task in chosen for _ in range(run.rl.group_size)],
                    playing.sampling,
                    seed=step,
                    group_size=run.rl.group_size,
                )
                right = [item for item in found if not item.broken and item.outcome == 1.0]
                transcripts = [item.transcript for item in right if item.transcript is not None]
                whole = [item for item in found if not item.broken]
                success = len(right) / max(1, len(whole))
                self.say(f"step {step}/{run.rl.steps}: {success:.0%} right")
                folder.log("rl", step, {"success": success})
                if transcripts:
                    rows = [Row(item.ids, item.mask()) for item in transcripts]
                    train_sft(work.model, rows, replace(run.sft, precision=run.model.precision))
                    work.give_weights()
            saved = Checkpoints(folder, run, playing.described()).final(work.model)
        folder.close()
        self.say(f"done: {saved}")


def prepare(run: OwnSuccesses, name: str, say: Callable[[str], None]) -> Job:
    """Check everything that can be checked before a model is loaded."""
    return Job(prepare_rl(run, name, say), say)


add_trainer(
    Trainer(
        "own-successes",
        "behaviour cloning of the model's own right episodes, over and over",
        OwnSuccesses(out=Path("runs/own-successes")),
        prepare,
    )
)
