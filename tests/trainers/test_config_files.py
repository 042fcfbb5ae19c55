"""Settings from YAML: numbers, names, and one line for what can't work."""

from typing import get_args

import pytest

from drv_env import SettingError
from drv_env.protocol import ReadingRule
from trainers.commands.agent_options import ReadingName
from trainers.commands.train import read_layers
from trainers.runs.trainer_registry import TRAINERS

IGPO, SFT = TRAINERS["igpo"], TRAINERS["sft"]


@pytest.fixture
def written(tmp_path):
    def write(text):
        file = tmp_path / "run.yaml"
        file.write_text(text)
        return file

    return write


def test_numbers_lists_and_nothing_are_what_they_should_be(written):
    text = """
        rl:
          learning_rate: 1e-6
          max_grad_norm: 1
          credit: {format_penalty: null}
          loss: {importance_cap: 2}
        tools: {world: [1, 2]}
        model: {folder: here, lora: {rank: 8, targets: [q_proj]}}
    """
    run = read_layers(written(text)).over(IGPO)
    assert run.rl.learning_rate == 1e-6
    assert isinstance(run.rl.max_grad_norm, float)
    assert run.rl.credit.format_penalty is None
    assert run.rl.loss.importance_cap == 2.0
    assert run.tools.world == (1, 2)
    assert run.model.settings().lora.targets == ("q_proj",)
    assert run.rl.rollout.seed == 0  # the trainer's own default


def test_the_file_wins_over_the_preset_and_the_preset_over_the_defaults(written):
    run = read_layers(written("preset: paper-rl\nrl: {group_size: 4}\n")).over(IGPO)
    assert (run.rl.group_size, run.rl.tasks_per_step) == (4, 16)
    assert run.rl.steps == IGPO.defaults.rl.steps


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rl: {stpes: 3}", "there is no setting rl.stpes; do you mean rl.steps?"),
        (
            "rl: {loss: {clip: 0.1}}",
            "no setting rl.loss.clip; do you mean rl.loss.clip_low?",
        ),
        ("zzz: 1", "there is no setting zzz; a run has out, backend"),
        ("rl: {steps: 0}", "rl.steps must be at least 1, got 0"),
        ("rl: {group_size: 1}", "rl.group_size must be at least 2"),
        ("rl: {credit: {gamma: 3}}", "rl.credit.gamma must be in (0, 1], got 3.0"),
        ("rl: {learning_rate: fast}", "rl.learning_rate can't be 'fast'"),
        (
            "rl: {rollouts: both}",
            "rl.rollouts can't be 'both': input should be 'vector' or",
        ),
        ("rl: {max_staleness: 1}", "max_staleness needs async rollouts"),
        ("rl: 3", "rl can't be 3"),
        ("model: {lora: {rank: 2, dropout: 2}}", "model.lora.dropout must be in [0, 1)"),
        ("engine: {gpu_memory: 2}", "engine.gpu_memory must be in (0, 1], got 2.0"),
        ("rl: [1", "line 1 is no YAML"),
        ("- 1", "must hold settings by name, not list"),
        ("plugins: mine", "plugins is a list of modules' names, got 'mine'"),
        ("preset: paper", "there is no preset 'paper', only paper-sft, paper-rl, cpu-small"),
    ],
)
def test_what_cannot_work_is_one_line_with_file_and_setting(written, text, said):
    file = written(text)
    with pytest.raises(SettingError) as raised:
        read_layers(file).over(IGPO)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(file) in str(raised.value)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(SettingError, match=r"no\.yaml can't be read"):
        read_layers(tmp_path / "no.yaml")
    assert read_layers(None).over(SFT) == SFT.defaults


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rl:\n  steps: 3\n  steps: 7\n", "line 3 is no YAML: steps is there twice"),
        ("rl: {steps: 3}\nrl: {group_size: 4}\n", "line 2 is no YAML: rl is there twice"),
        ("out: 2001-02-30\n", "holds a value that YAML can't read"),
        ("rl: {steps: true}\n", "rl.steps is a number, not true or false"),
        ("rl: {loss: {importance_cap: yes}}\n", "rl.loss.importance_cap is a number"),
        ("rl: {learning_rate: .inf}\n", "learning_rate must be above 0 and finite"),
        ("rl: {seed: -1}\n", "seed must be at least 0"),
    ],
)
def test_what_yaml_would_let_through_is_refused(written, text, said):
    with pytest.raises(SettingError, match=said):
        read_layers(written(text)).over(IGPO)


def test_a_flag_may_be_true(written):
    found = read_layers(written("rl: {packed: true, credit: {std_norm: no}}\n")).over(IGPO)
    assert (found.rl.packed, found.rl.credit.std_norm) == (True, False)


def test_the_rules_of_reading_are_settings_of_a_run(written):
    run = read_layers(written("rules: {max_unreadable: 3, reading: thought_optional}")).over(IGPO)
    assert (run.rules.max_unreadable, run.rules.reading) == (3, "thought_optional")
    with pytest.raises(SettingError, match=r"rules\.reading can't be 'loose'"):
        read_layers(written("rules: {reading: loose}")).over(IGPO)


def test_options_name_the_readings_that_there_are():
    assert get_args(ReadingName) == get_args(ReadingRule)
