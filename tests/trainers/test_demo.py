"""The demo's folder: its own for each variant, gone on with, never overwritten."""

import json

import pytest

from drv_env import SettingError
from trainers.cli import main
from trainers.demo import run_demo
from trainers.demo_config import DemoConfig
from trainers.run_folder import RunFolder

SMALL = {
    "expert_episodes": 48,
    "rl_steps": 2,
    "questions": 4,
    "copy_steps": 3,
    "worlds": 1,
    "sft_epochs": 1,
}


def demo(out, *more):
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    return main(["demo", "--out", str(out), *words, *more])


def test_a_finished_run_and_one_of_other_settings_are_refused_and_stay(tmp_path, capsys):
    out = tmp_path / "run"
    RunFolder(out, {"demo": DemoConfig(out=out, **SMALL)}).close()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert demo(out, "--seed", "1") == 1
    assert "unfinished run with another seed (seed was 0, is 1)" in capsys.readouterr().err
    (out / "checkpoints" / "final").mkdir(parents=True)
    (out / "checkpoints" / "final" / "config.json").write_text("{}")
    for more in ((), ("--seed", "1")):
        assert demo(out, *more) == 1
        said = capsys.readouterr().err
        assert f"holds a finished run: play its model with drv eval world --model {out}" in said
        assert len(said.splitlines()) == 1
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_that_was_left_goes_on(tmp_path, monkeypatch, capsys):
    log, taken = RunFolder.log, []

    def leave(self, phase, step, values):
        log(self, phase, step, values)
        if (phase, step) == ("rl", 2):
            raise KeyboardInterrupt

    def count(self, phase, step, values):
        taken.append((phase, step))
        log(self, phase, step, values)

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "log", leave)
        assert demo(out) == 130
    assert "the same command goes on" in capsys.readouterr().out
    assert not (out / "checkpoints").exists()
    (out / "notes.txt").write_text("mine")

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "log", count)
        assert demo(out) == 0
    assert {phase for phase, _ in taken} == {"evaluation"}, "what was done was done again"
    lines = [json.loads(line) for line in (out / "metrics.jsonl").open()]
    steps = sorted((line["phase"], line["step"]) for line in lines)
    assert len(steps) == len(set(steps)) > 8
    assert [step for phase, step in steps if phase == "evaluation"] == [0, 1, 4]
    assert [step for phase, step in steps if phase == "rl"] == [1, 2]
    assert (out / "notes.txt").read_text() == "mine"

    assert demo(out) == 1
    assert "holds a finished run" in capsys.readouterr().err


def test_the_folder_of_another_run_is_refused(tmp_path):
    RunFolder(tmp_path, {"trainer": "igpo"}).close()
    with pytest.raises(SettingError, match="the folder of another run"):
        run_demo(DemoConfig(out=tmp_path, **SMALL))


def test_each_variant_has_a_folder_of_its_own():
    assert str(DemoConfig().folder) == "runs/demo"
    assert str(DemoConfig(seed=1, algorithm="grpo").folder) == "runs/demo-seed1-grpo"
    made = {DemoConfig(**{name: value}).folder for name, value in SMALL.items()}
    assert len(made) == len(SMALL)


def test_one_left_before_its_first_state_says_what_it_does_again(tmp_path, monkeypatch, capsys):
    def leave(self, phase, step, values):
        if phase == "copy":
            raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "log", leave)
    out = tmp_path / "run"
    assert demo(out) == 130
    assert "goes on with" not in capsys.readouterr().out
    assert demo(out) == 130
    said = capsys.readouterr().out
    assert f"goes on with {out}, which was left before the first saved step of SFT" in said
