"""Checkpoints that are not whole, or not of one piece: refused by name before anything runs."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer

from agents.engines.checkpoint_check import check_checkpoint, check_names, check_tokenizer
from agents.engines.transformers import TransformersEngine
from drv_env.errors import EngineError, SettingError
from tests.small_agent import save_small_agent
from trainers.checkpoint import load_model
from trainers.cli import main

UP = "model.layers.0.mlp.up_proj.weight"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_agent(tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def rewrite(folder: Path, change: Callable[[Weights], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def shard(folder: Path) -> dict[str, str]:
    """The weights in two files, by halves, with their index."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    placed: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, folder / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": placed})
    )
    return placed


def truncate(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def nan_at(weights: Weights, name: str, value: float = float("nan")) -> None:
    weights[name] = weights[name].clone()
    weights[name].view(-1)[3] = value


def reconfigure(folder: Path, **values: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def layers(folder: Path, count: int) -> None:
    reconfigure(folder, num_hidden_layers=count, layer_types=["full_attention"] * count)


def index_of(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    placed = shard(folder)
    change(placed)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": placed})
    )


def wide(weights: Weights) -> None:
    weights[EMBEDDING] = torch.cat([weights[EMBEDDING], torch.zeros(2, 32)])


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda at: rewrite(at, lambda w: w.pop(UP)), "1 is missing.*up_proj"),
    "many missing": (
        lambda at: rewrite(at, lambda w: [w.pop(name) for name in list(w) if "mlp" in name]),
        r"6 are missing.*, …",
    ),
    "surplus": (
        lambda at: rewrite(at, lambda w: w.update({UP.replace(".0.", ".7."): torch.zeros(3)})),
        r"1 is surplus.*layers\.7",
    ),
    "another layer count": (lambda at: layers(at, 3), r"missing.*layers\.2"),
    "fewer layers": (lambda at: layers(at, 1), r"surplus.*layers\.1"),
    "a shape": (
        lambda at: rewrite(at, lambda w: w.update({UP: torch.zeros(3, 3)})),
        r"up_proj.*\(3, 3\).*\(64, 32\)",
    ),
    "more embeddings than said": (lambda at: rewrite(at, wide), "embed_tokens.*shape"),
    "nan": (lambda at: rewrite(at, lambda w: nan_at(w, UP)), "1 of 2,048 values of .*up_proj"),
    "inf": (lambda at: rewrite(at, lambda w: nan_at(w, UP, float("inf"))), "NaN or infinite"),
    "nan in the embedding": (
        lambda at: rewrite(at, lambda w: nan_at(w, EMBEDDING)),
        "values of .*embed_tokens",
    ),
    "integers": (
        lambda at: rewrite(at, lambda w: w.update({UP: w[UP].long()})),
        "up_proj.weight is stored as I64",
    ),
    "another head": (
        lambda at: rewrite(at, lambda w: w.update({HEAD: w[EMBEDDING] + 1})),
        "ties the output layer",
    ),
    "no head": (lambda at: reconfigure(at, tie_word_embeddings=False), "missing.*lm_head"),
    "cut off": (lambda at: truncate(at / "model.safetensors", 20_000), "damaged or cut off"),
    "cut off in the header": (lambda at: truncate(at / "model.safetensors", 100), "damaged"),
    "empty": (lambda at: truncate(at / "model.safetensors", 0), "damaged or cut off"),
    "no weights": (lambda at: (at / "model.safetensors").unlink(), "no model.safetensors in"),
    "something else": (
        lambda at: (at / "model.safetensors").write_bytes(b"version https://git-lfs\n" * 9),
        "damaged or cut off",
    ),
    "a missing shard": (
        lambda at: (shard(at), (at / "model-00002-of-00002.safetensors").unlink()),
        "no model-00002-of-00002.safetensors",
    ),
    "a shard that is cut off": (
        lambda at: (shard(at), truncate(at / "model-00001-of-00002.safetensors", 3_000)),
        "model-00001-of-00002.safetensors is damaged",
    ),
    "a whole model beside one in parts": (
        lambda at: (shard(at), save_file({UP: torch.zeros(1)}, at / "model.safetensors")),
        "clear which is meant",
    ),
    "a link that leads nowhere": (
        lambda at: (
            (at / "model.safetensors").unlink(),
            (at / "model.safetensors").symlink_to(at / "blobs" / "gone"),
        ),
        "no model.safetensors in",
    ),
    "an index that lacks a weight": (
        lambda at: index_of(at, lambda placed: placed.pop(UP)),
        "1 is surplus.*up_proj",
    ),
    "an index with more": (
        lambda at: index_of(at, lambda placed: placed.update({"x": placed[UP]})),
        r"1 is missing \(x\)",
    ),
    "an index that leaves the folder": (
        lambda at: index_of(at, lambda placed: placed.update({UP: "../x.safetensors"})),
        "can't be read",
    ),
    "an index that is no JSON": (
        lambda at: (shard(at), (at / "model.safetensors.index.json").write_text("{")),
        "index.json can't be read",
    ),
    "an index of a list": (
        lambda at: (shard(at), (at / "model.safetensors.index.json").write_text("[1]")),
        "index.json can't be read",
    ),
    "no configuration": (lambda at: (at / "config.json").unlink(), "no config.json|no such folder"),
    "a configuration that is none": (
        lambda at: (at / "config.json").write_text("{"),
        "config.json can't be read",
    ),
    "adapters alone": (
        lambda at: (at / "config.json").rename(at / "adapter_config.json"),
        "adapters alone|no such folder",
    ),
    "adapters beside": (
        lambda at: (at / "adapter_config.json").write_text("{}"),
        "adapters beside",
    ),
}
UNREAD = ("nan", "inf", "nan in the embedding", "another head")
"""Faults that names and headers don't show."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_model_that_is_not_whole_is_refused_by_name(copy: Path, fault: str) -> None:
    damage, words = FAULTS[fault]
    damage(copy)
    for load in (load_model, check_checkpoint):
        with pytest.raises(SettingError, match=words) as told:
            load(copy)
        assert str(copy) in str(told.value)
        assert "\n" not in str(told.value)
    if fault not in UNREAD:
        with pytest.raises(SettingError, match=words):
            check_names(copy)


def test_a_sound_model_is_loaded_whole_or_in_shards_in_other_types_and_padded(copy: Path) -> None:
    before = load_model(copy).state_dict()
    for check in (check_names, check_checkpoint):
        check(copy)
    rewrite(copy, lambda w: w.update({HEAD: w[EMBEDDING].clone()}))  # tied, and written twice
    check_checkpoint(copy)
    assert load_model(copy).state_dict().keys() == before.keys()
    rows = len(before[EMBEDDING]) + 7
    rewrite(copy, lambda w: w.pop(HEAD))
    rewrite(copy, lambda w: w.update({EMBEDDING: torch.cat([w[EMBEDDING], torch.zeros(7, 32)])}))
    reconfigure(copy, vocab_size=rows)
    check_tokenizer(copy, Tokenizer.from_file(str(copy / "tokenizer.json")), "here")
    shard(copy)
    check_checkpoint(copy)
    assert len(load_model(copy).state_dict()[EMBEDDING]) == rows
    assert load_model(copy, "bfloat16").dtype == torch.bfloat16


def test_a_type_too_narrow_for_the_weights_is_refused(copy: Path) -> None:
    rewrite(copy, lambda w: nan_at(w, UP, 1e6))  # float16 ends at 65,504
    assert load_model(copy).dtype == torch.float32
    with pytest.raises(SettingError, match="up_proj"):
        load_model(copy, "float16")


def test_a_tokenizer_with_tokens_beyond_the_embeddings_is_refused(copy: Path) -> None:
    tokenizer = Tokenizer.from_file(str(copy / "tokenizer.json"))
    count = tokenizer.get_vocab_size()
    check_tokenizer(copy, tokenizer, "here")
    tokenizer.add_tokens([AddedToken("<one too many>")])
    with pytest.raises(SettingError, match=f"'<one too many>' has the id {count}, and the model"):
        check_tokenizer(copy, tokenizer, "here")


def test_a_tokenizer_without_the_models_last_token_is_refused(copy: Path) -> None:
    reconfigure(copy, eos_token_id=10**6)
    tokenizer = Tokenizer.from_file(str(copy / "tokenizer.json"))
    with pytest.raises(SettingError, match="none of them has the id 1,000,000"):
        check_tokenizer(copy, tokenizer, "here")
    reconfigure(copy, eos_token_id=[10**6, 1])
    check_tokenizer(copy, tokenizer, "here")


# ---- engines ------------------------------------------------------------------------------


def test_the_engine_takes_no_model_and_no_new_weights_of_nan(sound: Path) -> None:
    model = load_model(sound)
    with torch.no_grad():
        model.get_parameter(UP)[0, 0] = float("nan")
    with pytest.raises(SettingError, match="up_proj"):
        TransformersEngine(model)
    engine = TransformersEngine(load_model(sound), slots=1)

    async def updated() -> None:
        before = await engine.score([1, 2, 3], [(1, 3)])
        with pytest.raises(EngineError, match=r"up_proj.*NaN"):
            await engine.update_weights(model)
        after = await engine.score([1, 2, 3], [(1, 3)])
        assert np.array_equal(before[0], after[0])
        assert engine.weight_version == 0
        await engine.close()

    asyncio.run(updated())


# ---- commands -----------------------------------------------------------------------------


def beyond(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<one too many>")])
    tokenizer.save(str(folder / "tokenizer.json"))


COMMANDS = {
    "eval": ["eval", "world", "--questions", "2", "--model"],
    "ask": ["ask", "Who owns the mill?", "--model"],
    "rollout": ["rollout", "world", "--questions", "2", "--out", "OUT", "--model"],
    "grpo": ["train", "grpo", "--out", "OUT", "--model.folder"],
    "igpo": ["train", "igpo", "--out", "OUT", "--model.folder"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "fault", ["missing", "surplus", "nan", "cut off", "beyond", "a link that leads nowhere"]
)
def test_every_command_refuses_it_before_anything_runs(
    copy: Path, tmp_path: Path, fault: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, _ = (beyond, "one too many") if fault == "beyond" else FAULTS[fault]
    damage(copy)
    out = tmp_path / "out"
    words_of = [str(out) if word == "OUT" else word for word in COMMANDS[command]]
    assert main([*words_of, str(copy)]) != 0
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert str(copy) in said.err.replace("\n", "")
    assert "0.0%" not in said.out
    assert "done" not in said.out
    assert not list(out.rglob("*.parquet"))
    assert not list(out.rglob("*.safetensors"))


def test_what_transformers_says_in_many_lines_is_one(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reconfigure(copy, model_type="unheard_of")
    assert main(["eval", "world", "--questions", "2", "--model", str(copy)]) == 1
    refusals = capsys.readouterr().err.split("drv: ")
    assert len(refusals) == 2
    assert "unheard_of" in refusals[1]
    assert len(refusals[1].strip().splitlines()) == 1
