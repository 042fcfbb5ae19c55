"""The same configuration on a cluster: what :mod:`trainers.openrlhf` is given of it.

Only ``drv train`` with ``backend: openrlhf`` imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agents.engines.checkpoint_check import check_planned
from drv_env.errors import SettingError
from drv_env.tasks import Task
from trainers.commands.agent_setup import template_source
from trainers.openrlhf.flags import arguments_of
from trainers.openrlhf.lacking import lacking
from trainers.openrlhf.launch import KIND, run_openrlhf
from trainers.openrlhf.run import FineTuning, GameSpec, OpenRLHFRun, Reinforcement
from trainers.openrlhf.sft_flags import sft_arguments_of
from trainers.runs.plan import Plan
from trainers.runs.playing import Playing
from trainers.runs.rl_run import plan_rows, planned_rl
from trainers.runs.run_config import RLRun, Run, SFTRun
from trainers.runs.running import STATE, refuse_inputs
from trainers.runs.sft_run import SFTJob, planned_sft

Say = Callable[[str], None]


@dataclass(frozen=True)
class ClusterJob:
    """A run on OpenRLHF that is ready to start.

    Attributes:
        what: OpenRLHF is given.
        plan: what it will do.
        say: told a line.
        tasks: to draw from, of a reinforcement.
    """

    what: OpenRLHFRun
    plan: Plan
    say: Say
    tasks: Sequence[Task] = ()

    def run(self) -> None:
        """Train; see :func:`trainers.openrlhf.launch.run_openrlhf`."""
        final = run_openrlhf(self.what, self.tasks)
        self.say(f"done: {final} (drv eval, drv ask play it)")


def prepare_cluster(run: Run, name: str, say: Say) -> ClusterJob:
    """A run on OpenRLHF, checked as far as it can be without starting it.

    Args:
        run: the configuration.
        name: the trainer's.
        say: told what is decided without being asked.

    Raises:
        DrvError: naming what can't work.
    """
    if run.model.lora.rank:
        raise SettingError(
            "model.lora.rank: OpenRLHF does not move adapters to vLLM; train all weights, or with "
            "backend device"
        )
    KIND.record(run.out)
    refuse_inputs(run)
    title = f"{name} on OpenRLHF: the plan"
    if isinstance(run, RLRun):
        playing = planned_rl(run, say)[0]
        what = _reinforcement(run, playing)
        arguments_of(what)  # refuses what does not go together
        check_planned(run.model.folder)
        rows = [*plan_rows(run, playing), *_rows(run)]
        plan = Plan(title, rows, warnings=_warnings(run, what))
        return ClusterJob(what, plan, say, playing.tasks)
    if isinstance(run, SFTRun):
        if run.data.held_out:
            raise SettingError("data.held_out: OpenRLHF measures none of our rows; set it to 0")
        job = planned_sft(run, name, say)
        if job.left_out:
            raise SettingError("OpenRLHF takes all rows of data.rows: make them again")
        what = _fine_tuning(run, job)
        sft_arguments_of(what)
        plan = Plan(title, [*job.plan.rows, *_rows(run)], warnings=_warnings(run, what))
        return ClusterJob(what, plan, say)
    raise SettingError(f"{name} knows no backend openrlhf; say device")


def _reinforcement(run: RLRun, playing: Playing) -> OpenRLHFRun:
    tools = run.tools
    game = GameSpec(
        tools=playing.tools.kind,
        worlds=playing.tools.worlds,
        tool_settings=playing.tools.settings,
        own_tools=tools.own,
        pages=tools.pages,
        web=tools.web,
        cassette=tools.cassette,
        cassette_only=tools.cassette_only,
        outcome=run.outcome,
        rules=playing.agent.bounds,
    )
    config = replace(run.rl, sampling=playing.sampling, precision=run.model.precision)
    return _run(run, reinforcement=Reinforcement(config=config, game=game, plugins=run.plugins))


def _fine_tuning(run: SFTRun, job: SFTJob) -> OpenRLHFRun:
    config = replace(run.sft, precision=run.model.precision)
    return _run(run, fine_tuning=FineTuning(config=config, rows=job.store.path, agent=job.agent))


def _run(
    run: Run,
    reinforcement: Reinforcement | None = None,
    fine_tuning: FineTuning | None = None,
) -> OpenRLHFRun:
    states = run.out / STATE
    return OpenRLHFRun(
        model=run.model_folder,
        out=run.out,
        reinforcement=reinforcement,
        fine_tuning=fine_tuning,
        chat_template=template_source(run.model.chat_template),
        gradient_checkpointing=run.model.gradient_checkpointing,
        cluster=run.cluster,
        resume=states.is_dir() and any(states.iterdir()),
    )


def _rows(run: Run) -> list[tuple[str, str]]:
    cluster = run.cluster
    return [
        ("nodes × devices of the model", f"{cluster.nodes:,} × {cluster.gpus:,}"),
        ("engines × devices", f"{cluster.engines:,} × {cluster.engine_gpus:,}"),
        ("ZeRO stage", str(cluster.zero_stage)),
    ]


def _warnings(run: Run, what: OpenRLHFRun) -> list[str]:
    return [*_unused(run), *(f"not on this machine: {line}" for line in lacking(what))]


def _unused(run: Run) -> list[str]:
    """What only the one-device trainer does."""
    found = []
    if isinstance(run, RLRun) and run.evaluation.every:
        found.append("evaluation is left out on OpenRLHF; drv eval plays the checkpoint")
    if run.checkpoints.every:
        found.append("checkpoints.every is left out on OpenRLHF, which leaves the final model")
    return found
