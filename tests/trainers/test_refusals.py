"""``drv train`` refuses what can't work before a model is loaded, in one line, by name."""

import json

import numpy as np
import pytest

from tests.trainers.train_runs import SMALL, save_untrained, train
from trainers.runs import refusals


@pytest.fixture(scope="module")
def folder(tiny_game, tmp_path_factory):
    path = tmp_path_factory.mktemp("refused")
    save_untrained(tiny_game, path)
    for name in ("model.safetensors",):  # nothing here is to load it
        (path / "untrained" / name).unlink()
    tasks = [
        {"question": task.question, "answer": task.answers[0], "world": task.world}
        for task in tiny_game.tasks[:3]
    ]
    (path / "three.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tasks))
    (path / "mine.txt").mkdir()
    (path / "mine.txt" / "thesis").write_text("mine")
    return path


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--rules.max-context 40", "--rules.max-context=40 is too small: the opening takes"),
        ("--rules.max-turn-tokens 300", "and 716 are held back for one turn"),
        (
            "--rules.max-context 9999",
            "--rules.max-context is 9,999, but the model has 512 positions",
        ),
        (
            "--rl.tasks-per-step 4 --tasks.source {folder}/three.jsonl --evaluation.every 0",
            "--rl.tasks-per-step is 4, but there are 3 questions",
        ),
        ("--evaluation.questions 9999", "--evaluation.questions must be from 1 to the"),
        ("--evaluation.part train", "of the held-out questions are trained on"),
        (
            "--evaluation.questions 3 --tasks.source {folder}/three.jsonl",
            "--evaluation.questions holds out all 3 questions",
        ),
        ("--tasks.questions 0", "--tasks.questions must be from 1 to the"),
        ("--tasks.source {folder}/no.jsonl", "no.jsonl"),
        (
            "--tasks.source {folder}/three.jsonl --tasks.question-column Frage",
            "three.jsonl",
        ),
        ("--model.lora.rank 4 --model.lora.dropout 0.1", "--model.lora.dropout is 0.1"),
        ("--model.chat-template nothing", "--model.chat-template nothing is none of own"),
        ("--model.device tpu0x", "--model.device can't be 'tpu0x'"),
        ("--rl.precision bfloat16", "--rl.precision is said by --model.precision"),
        ("--rl.rollout.seed None", "--rl.rollout.seed must be a number"),
        ("--rl.rollout.group-size 3", "--rl.group-size decides"),
        ("--rl.advantages mine", "there is no way to advantages 'mine'"),
        ("--engine.gpu-memory 0.5", "--engine.gpu-memory goes with --engine.kind vllm"),
        ("--tools.web x", "--tools.web goes with --tools.kind recorded, not offline"),
        ("--tools.kind live", "need --tools.kind offline, not live"),
        ("--plugins no_such_module", "the plugin no_such_module can't be imported"),
        ("--config {folder}/no.yaml", "no.yaml can't be read"),
        ("--preset paper-sft", "the preset has data, sft"),
        ("--out {folder}/mine.txt", "holds other files and no run"),
        ("--out {folder}/three.jsonl", "is a file"),
        ("--model.folder {folder}", "no such folder with a model"),
        ("-- --train.x 1", "--cluster.flags are for OpenRLHF, but backend is device"),
    ],
)
def test_one_line_names_what_cannot_work(folder, tmp_path, capsys, more, said):
    words = [word.format(folder=folder) for word in more.split()]  # it may hold a space
    assert train("igpo", folder / "untrained", tmp_path / "out", *SMALL, *words) == 1
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert err.strip().splitlines()[-1].startswith("drv: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--rl.stpes 3", "--rl.stpes"),
        ("--rl.learning-rate fast", "--rl.learning-rate"),
    ],
)
def test_an_option_that_cannot_work_is_named(folder, tmp_path, capsys, more, said):
    with pytest.raises(SystemExit) as stopped:
        train("igpo", folder / "untrained", tmp_path / "out", *more.split())
    assert stopped.value.code == 2
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--rl.group-size 1", "--rl.group-size must be at least 2"),
        ("--rl.credit.gamma 5", "--rl.credit.gamma must be in (0, 1], got 5.0"),
        ("--rl.rollout.stragglers ask", "--rl.rollout.stragglers needs async rollouts"),
        ("--rl.gain.tools", "--rl.gain.tools must be a non-empty collection"),
        ("--tools.world -1", "--tools.world must be at least 0, got -1"),
        ("--rl.tasks-per-step 4000", "--rl.tasks-per-step is 4000, but there are"),
        ("--rules.max-turns 0", "--rules.max-turns must be at least 1, got 0"),
        ("--tasks.questions 0", "--tasks.questions must be from 1 to the"),
        ("--engine.gpu-memory 0.5", "--engine.gpu-memory goes with --engine.kind vllm"),
    ],
)
def test_a_value_that_cannot_work_is_one_line_that_names_its_option(
    folder, tmp_path, capsys, more, said
):
    assert train("igpo", folder / "untrained", tmp_path / "out", *more.split()) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("drv: ")
    assert said in line


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "data needs either rows"),
        ("--model.folder {folder}/no --plan", "no: no such folder with a model (config.json)"),
        ("--data.rows {folder}", "holds no finished token documents"),
        ("--data.trajectories {folder}/no.parquet", "there is no file or folder"),
        ("--data.trajectories {folder}/expert.parquet --data.held-out 0.001", "holds out 0 and"),
        (
            "--data.trajectories {folder}/expert.parquet --data.max-tokens 5",
            "trajectories keeps a token to learn within --data.max-tokens=5; raise it",
        ),
        ("--sft.precision bfloat16", "--sft.precision is said by --model.precision"),
    ],
)
def test_fine_tuning_refuses_too(folder, tmp_path, capsys, more, said):
    words = [word.format(folder=folder) for word in more.split()]  # it may hold a space
    assert train("sft", folder / "untrained", tmp_path / "out", *words) == 1
    assert said in capsys.readouterr().err


def test_rows_of_another_tokenizer_are_refused(folder, tmp_path, capsys):
    from drv_env.worlds import WorldRecipe
    from replay.chat_templates import CHATML, QWEN3_THINKING
    from trainers.checkpoint import save_model
    from trainers.cli import main
    from trainers.tiny import build_model, build_tokenizer

    rows = tmp_path / "rows"
    expert, own = str(folder / "expert.parquet"), folder / "untrained"
    make = ["data", "rows", expert, "--tokenizer", str(own), "--out", str(rows)]
    assert main([*make, "--workers", "1"]) == 0
    other = build_tokenizer(["another"], WorldRecipe(4).build().kinds)
    save_model(tmp_path / "other", build_model(other, 0), other, QWEN3_THINKING)
    capsys.readouterr()
    where = ("--data.rows", str(rows), "--plan")
    assert train("sft", own, tmp_path / "out", *where) == 0
    assert "48 to learn, 0 held out" in capsys.readouterr().out
    assert train("sft", tmp_path / "other", tmp_path / "out", *where) == 1
    assert "another tokenizer or chat template" in capsys.readouterr().err
    assert train("sft", own, tmp_path / "out", *where, "--model.chat-template", "chatml") == 1
    assert CHATML


def test_what_may_be_meant_otherwise_is_a_warning(folder, tmp_path, capsys):
    stale = ["--rl.rollouts", "async", "--rl.max-staleness", "1", "--plan"]
    assert train("igpo", folder / "untrained", tmp_path / "out", *SMALL, *stale) == 0
    assert "set rl.loss.importance_cap" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("trainer", "more", "said"),
    [
        ("grpo", "--rl.credit.format-penalty 1", True),
        ("grpo", "--rl.credit.format-penalty 0", False),
        ("grpo", "--rl.credit.format-penalty 1 --rl.credit.penalty-alone", False),
        ("grpo", "--rl.credit.format-penalty 1 --rl.credit.normalisation joint", False),
        ("grpo", "", False),
        ("igpo", "", False),
        ("igpo", "--rl.credit.normalisation raw_ig", True),
        ("igpo", "--rl.credit.normalisation raw_ig --rl.credit.penalty-alone", False),
    ],
)
def test_a_penalty_that_does_not_act_as_meant_is_a_warning(
    folder, tmp_path, capsys, trainer, more, said
):
    words = [*SMALL, "--plan", *more.split()]
    assert train(trainer, folder / "untrained", tmp_path / "out", *words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert ("set rl.credit.penalty_alone" in told) == said


def test_packages_that_are_missing_are_named(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(refusals, "_installed", lambda package: False)
    for more, said in (
        ("--engine.kind vllm", "engine.kind vllm needs the package vllm: pip install"),
        ("--model.lora.rank 4", "model.lora.rank needs the package peft: pip install"),
    ):
        assert train("igpo", folder / "untrained", tmp_path / "out", *SMALL, *more.split()) == 1
        assert said in capsys.readouterr().err


def test_the_models_own_dropout_is_refused(folder, tmp_path, capsys):
    import shutil

    model = shutil.copytree(folder / "untrained", tmp_path / "model")
    file = model / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "attention_dropout": 0.1}))
    assert train("igpo", model, tmp_path / "out", *SMALL) == 1
    assert "has a dropout of 0.1" in capsys.readouterr().err


def test_the_same_configuration_comes_to_a_plan_of_openrlhf(folder, tmp_path, capsys):
    on = ["--backend", "openrlhf", "--model.precision", "bfloat16", "--plan"]
    out = tmp_path / "out"
    flags = ["--", "--vllm.enforce_eager"]
    assert train("igpo", folder / "untrained", out, *SMALL, *on, "--cluster.gpus", "2", *flags) == 0
    said = capsys.readouterr().out
    assert "2 × 4 = 8" in said
    assert "evaluation is left out on OpenRLHF" in " ".join(said.split())
    for more, told in (
        (("--model.precision", "float32"), "OpenRLHF computes in bfloat16"),
        (("--model.lora.rank", "4"), "--model.lora.rank: OpenRLHF does not move adapters"),
        (("--", "--actor.adam.lr", "1"), "--actor.adam.lr is decided by --rl.learning-rate"),
    ):
        assert train("igpo", folder / "untrained", out, *SMALL, *on, *more) == 1
        assert told in capsys.readouterr().err
    assert not out.exists()


def test_rows_with_ids_outside_the_vocabulary_are_left_out_and_named(folder, tmp_path, capsys):
    from trainers.cli import main

    rows = tmp_path / "rows"
    own = folder / "untrained"
    make = ["data", "rows", str(folder / "expert.parquet"), "--tokenizer", str(own)]
    assert main([*make, "--out", str(rows), "--workers", "1"]) == 0
    ids = np.load(rows / "shard-00000.ids.npy")
    lengths = json.loads((rows / "shard-00000.json").read_text())["lengths"]
    ids[lengths[0]] = -1
    ids[sum(lengths[:5])] = 2**30
    np.save(rows / "shard-00000.ids.npy", ids)
    capsys.readouterr()
    where = ("--data.rows", str(rows), "--plan")
    assert train("sft", own, tmp_path / "out", *where) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert "2 rows were left out; the first:" in said
    assert f"row 1: id -1 at {lengths[0]} is none of the" in said
    assert "46 to learn, 0 held out" in said
    np.save(rows / "shard-00000.ids.npy", ids - 2**30)
    assert train("sft", own, tmp_path / "out", *where) == 1
    assert "no row can be learnt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("rl: {seed: 9223372036854775808}", "seed must be at most 9223372036854775807"),
        ("rl: {seed: 1.0e+30}", "seed"),
        ("rl: {seed: -1}", "seed must be at least 0, got -1"),
        ("rl: {rollout: {seed: 99999999999999999999}}", "seed must be at most"),
        ("rl: {steps: .nan}", "steps"),
        ("rl: {group_size: 2.5}", "group_size"),
        ("rl: {rollout: {turn_timeout: .inf}}", "turn_timeout must be above 0 seconds and finite"),
        ("tools: {world: [-1]}", "tools.world must be at least 0, got -1"),
        ("rl: {packed: 3}", "packed"),
    ],
)
def test_numbers_of_a_file_meet_the_same_checks(folder, tmp_path, capsys, settings, said):
    file = tmp_path / "run.yaml"
    file.write_text(settings)
    out = tmp_path / "out"
    assert train("igpo", folder / "untrained", out, "--config", str(file)) == 1
    told = capsys.readouterr().err
    assert "run.yaml" in told
    assert said in told
    assert told.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("name", ["sft", "igpo"])
def test_a_model_without_weights_is_refused_before_a_run_begins(folder, tmp_path, capsys, name):
    data = ["--data.trajectories", str(folder / "expert.parquet")] if name == "sft" else SMALL
    assert train(name, folder / "untrained", tmp_path / "out", *data) == 1
    said = capsys.readouterr()
    assert "no model.safetensors in" in said.err
    assert "done" not in said.out + said.err
    assert not (tmp_path / "out" / "checkpoints").exists()
    assert not (tmp_path / "out" / "metrics.jsonl").exists()
