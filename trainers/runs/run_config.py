"""The whole configuration of a run of training: one record for both backends.

Plain values alone; :mod:`trainers.runs.config_files` makes them of YAML, ``drv train`` of options
of the same names.  What a value means for the loop is said at the loop's own record
(:class:`~trainers.rl_config.RLConfig`, :class:`~trainers.sft.SFTConfig`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from agents.rollout import RolloutSettings
from drv_env.settings import SEED, above, at_least, between, check_fields
from replay.documents import Cut
from trainers.commands.agent_options import Part, RuleOptions
from trainers.commands.tool_setup import WORLD
from trainers.model_settings import LoRASettings, ModelSettings, Precision
from trainers.openrlhf.cluster import Cluster
from trainers.rl_config import RLConfig
from trainers.sft_config import SFTConfig

Backend = Literal["device", "openrlhf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRASection:
    """Adapters; see :class:`trainers.model_setup.LoRASettings`.

    Attributes:
        rank: of the adapters; 0 trains all weights.
        alpha: what they add is multiplied by alpha / rank.
        dropout: of their inputs; 0 for reinforcement.
        targets: names of the layers that get one; ``all-linear`` is all but the head.
    """

    rank: int = 0
    alpha: float = 32.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ("all-linear",)

    def __post_init__(self) -> None:
        check_fields(self, rank=at_least(0), alpha=above(0), dropout=between(0, 1, most_open=True))
        if self.rank:
            self.settings()

    def settings(self) -> LoRASettings | None:
        """For the trainers; None without adapters."""
        if not self.rank:
            return None
        every = self.targets == ("all-linear",)
        return LoRASettings(
            rank=self.rank,
            alpha=self.alpha,
            dropout=self.dropout,
            targets="all-linear" if every else self.targets,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    """What is trained, and how it is held.

    Attributes:
        folder: of the model, as save_pretrained writes it, or the name of a model of the Hub
            that was fetched (hf download NAME).
        chat_template: own, qwen3-thinking, chatml, or a file of Jinja.
        device: such as cuda or cpu; None is cuda where there is one.
        precision: what matrices are multiplied in; what is trained stays in float32.
        gradient_checkpointing: much less memory for about a third more time.
        lora: adapters instead of all weights.
    """

    folder: str = ""
    chat_template: str = "own"
    device: str | None = None
    precision: Precision = "float32"
    gradient_checkpointing: bool = False
    lora: LoRASection = LoRASection()

    def __post_init__(self) -> None:
        check_fields(self)

    def settings(self) -> ModelSettings:
        """For :func:`trainers.model_setup.prepare_model`."""
        return ModelSettings(
            precision=self.precision,
            gradient_checkpointing=self.gradient_checkpointing,
            lora=self.lora.settings(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSection:
    """The questions to train on.

    Attributes:
        source: a file of tasks, or the word world, for questions about the offline webs.
        questions: draw so many of them; None takes all.
        part: of a world's questions.
        hops: how many facts a question about a world chains; empty takes agent.json's, else
            1, 2 and 3.
        balanced: take as many questions about worlds of each number of hops, as many as there
            are of the rarest; None takes agent.json's, else false.
        question_column: of a file, the column of questions; None finds it by its usual names.
        answer_column: likewise, of gold answers.
        id_column: likewise, of ids.
    """

    source: str = WORLD
    questions: int | None = None
    part: Part = "train"
    hops: tuple[int, ...] = ()
    balanced: bool | None = None
    question_column: str | None = None
    answer_column: str | None = None
    id_column: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, hops=at_least(1))

    def columns(self) -> dict[str, str | None]:
        """For :func:`drv_env.task_files.read_tasks`."""
        return {
            "question": self.question_column,
            "answer": self.answer_column,
            "id": self.id_column,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSection:
    """What search and visit work on.

    Attributes:
        kind: live (keys are needed), offline (invented webs, or pages) or recorded; None takes
            what the others say, or the model's agent.json.  Or tools of your own in their place:
            module:attribute, an entry point, or a name that a plugin registers.
        own: tools of your own beside them, named likewise.
        pages: of your own, for offline tools: a table with the columns url, title and text, or
            a folder of .txt, .md and .html files.
        world: seeds of the invented webs; empty takes agent.json's.
        web: a folder of a recorded web, made by drv data web.
        cassette: a file that keeps what live calls gave and answers them when they come again.
        cassette_only: make no call that the cassette doesn't have.
        evidence_words: of a visited page, the most words that are shown where no model reads it;
            None is agent.json's, else 400.
        whole_pages: show such pages whole, however long.
    """

    kind: str | None = None
    own: tuple[str, ...] = ()
    pages: Path | None = None
    world: tuple[int, ...] = ()
    web: Path | None = None
    cassette: Path | None = None
    cassette_only: bool = False
    evidence_words: int | None = None
    whole_pages: bool = False

    def __post_init__(self) -> None:
        check_fields(self, world=SEED, evidence_words=at_least(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSection:
    """What plays the rollouts, with its own copy of the weights.

    Attributes:
        kind: transformers (in this process) or vllm.
        parallel: episodes at once; None is 16 with transformers, 64 with vllm.
        dtype: of its weights and cache; None is bfloat16 where model.precision is, else
            float32.
        gpu_memory: share of the GPU's memory that vLLM takes, weights and cache together;
            None leaves it to vLLM (0.9).
    """

    kind: Literal["transformers", "vllm"] = "transformers"
    parallel: int | None = None
    dtype: Literal["float32", "bfloat16"] | None = None
    gpu_memory: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, parallel=at_least(1), gpu_memory=between(0, 1, least_open=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSection:
    """How the policy does on questions it is never trained on.

    Attributes:
        every: steps between two evaluations; the first is before training, the last after
            it. 0 makes none.
        questions: held-out questions.
        source: a file of tasks; None holds out questions of the run's own: of a world those
            of ``part``, of a file some drawn at random.
        part: of a world's questions.
        samples: episodes of each question.
    """

    every: int = 0
    questions: int = 64
    source: str | None = None
    part: Part = "validation"
    samples: int = 1

    def __post_init__(self) -> None:
        check_fields(self, every=at_least(0), questions=at_least(1), samples=at_least(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSection:
    """Models to play with, beside the state from which a run goes on.

    Attributes:
        every: steps between two, ``checkpoints/step-N``; 0 keeps ``checkpoints/final`` alone.
        keep: the newest so many of them stay, and ``final``.
    """

    every: int = 0
    keep: int = 2

    def __post_init__(self) -> None:
        check_fields(self, every=at_least(0), keep=at_least(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSection:
    """What fine-tuning learns from: rows or trajectories, one of the two.

    Attributes:
        rows: a folder made by drv data rows, with the model's tokenizer.
        trajectories: files or folders of trajectories or recorded chats; they are tokenised
            into the run's folder at the start, and weighted by their ``weight``.
        max_tokens: the most tokens of a trajectory; for trajectories.
        cut: how longer ones are shortened: right (to the token) or turn.
        held_out: share of the rows that are not learnt but measured; 0 is none.
        workers: processes that tokenise.
    """

    rows: Path | None = None
    trajectories: tuple[Path, ...] = ()
    max_tokens: int = 200_000
    cut: Cut = "right"
    held_out: float = 0.0
    workers: int = 1

    def __post_init__(self) -> None:
        check_fields(
            self,
            max_tokens=at_least(2),
            held_out=between(0, 1, most_open=True),
            workers=at_least(1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What every run has.

    Attributes:
        out: the run's folder.  The same command goes on from what it holds.
        backend: device (this process) or openrlhf (a cluster).
        cluster: where it runs under openrlhf; ``flags`` go to its command line as they are.
        plugins: modules to import first, which register trainers or advantages of your own.
        model: what is trained.
        checkpoints: models to play with.
    """

    out: Path = Path("runs/train")
    backend: Backend = "device"
    cluster: Cluster = field(default_factory=Cluster)
    plugins: Annotated[tuple[str, ...], tyro.conf.Suppress] = ()
    model: ModelSection = ModelSection()
    checkpoints: CheckpointSection = CheckpointSection()

    @property
    def model_folder(self) -> Path:
        """The folder of the model."""
        return Path(self.model.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTRun(Run):
    """Behaviour cloning.

    Attributes:
        data: what is learnt.
        sft: the loop.
    """

    data: DataSection = DataSection()
    sft: SFTConfig = field(default_factory=SFTConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class RLRun(Run):
    """Reinforcement on the model's own rollouts.

    Attributes:
        tasks: the questions.
        tools: what search and visit work on.
        rules: what an episode may use; as published, or as the model's agent.json says.
        outcome: how answers are scored: exact, f1, exact-cjk, f1-cjk, key-facts, judge, or one
            of your own, named as tools are.
        engine: what plays.
        evaluation: on held-out questions.
        rl: the loop.
    """

    tasks: TaskSection = TaskSection()
    tools: ToolSection = ToolSection()
    rules: RuleOptions = field(default_factory=RuleOptions)
    outcome: str = "exact"
    engine: EngineSection = EngineSection()
    evaluation: EvaluationSection = EvaluationSection()
    rl: RLConfig = field(default_factory=lambda: RLConfig(rollout=RolloutSettings(seed=0)))
