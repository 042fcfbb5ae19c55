"""Models by their names on the Hub: from the local cache, or with the words that fetch them."""

import json
import socket
from pathlib import Path

import pytest

from agents.engines.checkpoint_check import load_checked
from drv_env.errors import SettingError
from replay.model_folders import fetching, hub_cache, model_folder
from replay.template import ChatTemplate
from tests.small_agent import save_small_agent
from trainers.cli import main
from trainers.commands.agent_options import AgentOptions, ModelOptions
from trainers.commands.agent_setup import plan_agent
from trainers.plugins import is_model

NAME = "some-org/Tiny.agent-1"
COMMIT = "0f" * 20


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A cache as Hugging Face's tools lay it out: blobs, and a snapshot of links to them."""
    home = tmp_path_factory.mktemp("hub")
    plain = save_small_agent(home / "plain")
    kept = home / "cache" / "models--some-org--Tiny.agent-1"
    snapshot = kept / "snapshots" / COMMIT
    for folder in (kept / "blobs", kept / "refs", snapshot):
        folder.mkdir(parents=True)
    for number, file in enumerate(sorted(plain.iterdir())):
        file.rename(kept / "blobs" / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(number))
    (kept / "refs" / "main").write_text(COMMIT)
    return home / "cache"


@pytest.fixture
def here(cache, tmp_path, monkeypatch) -> Path:
    """An empty working folder, the cache known, and no way to any network."""

    def refuse(*_):
        raise AssertionError("the network was asked")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return tmp_path


def write_rows(file: Path) -> None:
    """One trajectory of one turn."""
    turn = "<think>\nSalen.\n</think>\n<answer>Salen</answer>"
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": turn}]
    file.write_text(json.dumps({"messages": messages}))


def test_a_runs_folder_names_the_model_in_it(here, capsys):
    final = save_small_agent(here / "runs" / "mine" / "checkpoints" / "final")
    (here / "runs" / "mine" / "config.json").write_text('{"config": {}, "versions": {}}')
    for named, fault in (
        ("runs/mine", "a run's folder, and no model's"),
        ("runs/mine/checkpoints", "no such folder with a model (config.json)"),
    ):
        options = AgentOptions(model=ModelOptions(model=named))
        with pytest.raises(SettingError) as raised:
            plan_agent(options, lambda _: None)
        there = final.relative_to(here)
        assert str(raised.value) == f"--model {named}: {fault}; there is one in {there}"
        assert fetching(named) == ""
    write_rows(Path("rows.jsonl"))
    assert main(["data", "rows", "rows.jsonl", "--tokenizer", "runs/mine", "--out", "o"]) == 1
    assert capsys.readouterr().err.endswith(f"; there is one in {there}\n")


def test_a_fetched_model_is_found_wherever_one_is_named(here, cache, capsys):
    snapshot = cache / "models--some-org--Tiny.agent-1" / "snapshots" / COMMIT
    assert model_folder(NAME) == snapshot
    ids = ChatTemplate.from_folder(NAME).pieces.digest
    assert ids == ChatTemplate.from_folder(snapshot).pieces.digest
    assert load_checked(NAME).config.vocab_size == load_checked(snapshot).config.vocab_size

    assert is_model(NAME)
    assert not is_model("some-org/other")

    server = ModelOptions(model="m", base_url="http://h/v1", tokenizer=Path(NAME))
    assert plan_agent(AgentOptions(model=server), lambda _: None).folder == snapshot
    plan = plan_agent(AgentOptions(model=ModelOptions(model=NAME)), lambda _: None)
    assert plan.options.model == str(snapshot)

    write_rows(Path("rows.jsonl"))
    assert main(["data", "rows", "rows.jsonl", "--tokenizer", NAME, "--out", "rows"]) == 0
    assert main(["train", "igpo", "--model.folder", NAME, "--plan", "--model.device", "cpu"]) == 0
    assert main(["train", "sft", "--model.folder", NAME, "--data.rows", "rows", "--plan"]) == 0
    assert "Errno" not in capsys.readouterr().err


def test_a_fetched_model_plays(here, capsys):
    asked = ["eval", "world", "--model", NAME, "--world", "7", "--questions", "1", "--json"]
    assert main([*asked, "--max-turns", "1"]) in (0, 1)  # whatever an untrained model does
    assert "no such folder" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["ask", "who?", "--model", "org/other"],
        ["eval", "world", "--model", "org/other"],
        ["rollout", "world", "--out", "out", "--model", "org/other"],
        ["ask", "who?", "--model", "m", "--base-url", "http://h/v1", "--tokenizer", "org/other"],
        ["data", "rows", "rows.jsonl", "--out", "out", "--tokenizer", "org/other"],
        ["train", "igpo", "--model.folder", "org/other"],
        ["train", "grpo", "--model.folder", "org/other", "--backend", "openrlhf"],
        ["train", "sft", "--model.folder", "org/other", "--data.rows", "x"],
    ],
    ids=" ".join,
)
def test_one_that_is_not_there_says_how_it_is_fetched(command, here, capsys):
    write_rows(Path("rows.jsonl"))
    assert main(command) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("drv: ")
    assert line.endswith("a model of the Hub is there once it is fetched: hf download org/other")


def test_python_says_it_too(here):
    for load in (ChatTemplate.from_folder, load_checked):
        with pytest.raises(SettingError, match=r"hf download org/other$"):
            load("org/other")


def test_a_folder_here_comes_first_and_paths_are_no_names_of_the_hub(here):
    Path(NAME).mkdir(parents=True)
    assert model_folder(NAME) == Path(NAME)
    for path in ("/models/mine", "./mine", "../mine/x", "runs/demo/checkpoints", "mine/", "a b/c"):
        assert model_folder(path) == Path(path)
        assert fetching(path) == ""


def test_a_damaged_cache_is_no_model(here, cache, tmp_path, monkeypatch):
    other = tmp_path / "cache"
    monkeypatch.setenv("HF_HUB_CACHE", str(other))
    main_ref = other / "models--a--b" / "refs" / "main"
    main_ref.parent.mkdir(parents=True)
    for content in (b"", b"../../..", b"\xff\xfe", b"not-there"):
        main_ref.write_bytes(content)
        assert model_folder("a/b") == Path("a/b")


def test_the_cache_is_where_the_hubs_own_tools_have_it(monkeypatch, tmp_path):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub_cache() == tmp_path / ".cache" / "huggingface" / "hub"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert hub_cache() == Path("/x/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "$HOME/hf")
    assert hub_cache() == tmp_path / "hf" / "hub"
    monkeypatch.setenv("HUGGINGFACE_HUB_CACHE", "/old")
    assert hub_cache() == Path("/old")
    monkeypatch.setenv("HF_HUB_CACHE", "~/mine")
    assert hub_cache() == tmp_path / "mine"
