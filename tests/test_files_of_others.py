"""No command replaces or deletes a file that it did not make, whatever the paths are called."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from drv_env.cassette import CassetteStore, Recorded
from tests.replay import raw_rows as raw
from tests.replay import recordings as made
from tests.replay.conftest import byte_level_bpe
from tests.small_agent import save_small_agent
from trainers.cli import main
from trainers.run_folder import RunFolder
from trainers.training_state import StateFolder
from trainers.written_folder import remove_written


def state_of(folder: Path) -> dict[str, str]:
    """Every file below a folder, with a digest; a link with what it says."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file():
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture
def given(tmp_path):
    """Inputs of every kind."""
    folder = tmp_path / "given"
    folder.mkdir()
    raw.write_parquet(folder / "raw.parquet", raw.many(6))
    rows = [{"messages": made.spaced()}, {"messages": made.tight()}]
    (folder / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    byte_level_bpe().save(str(folder / "tokenizer.json"))
    return folder


def commands(given: Path, out: Path, source: Path | None = None) -> dict[str, list[str]]:
    """Commands that fill a folder from recorded trajectories."""
    chats = str(source or given / "chats.jsonl")
    clean = ["data", "clean", str(source or given / "raw.parquet")]
    rows = ["--tokenizer", str(given), "--chat-template", "qwen3-thinking", "--workers", "1"]
    return {
        "clean": [*clean, "--out", str(out), "--workers", "1"],
        "rows": ["data", "rows", chats, "--out", str(out), *rows],
        "web": ["data", "web", chats, "--out", str(out)],
    }


MINE = {
    "clean": ("part-00000.parquet", "part-00007.parquet", "stats.json", "turns.svg", ".work/x"),
    "rows": ("shard-00000.ids.npy", "shard-notes", "index.json", "packing.json"),
    "web": ("cassette", "pages.sqlite", "web.json"),
}


@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for command, names in MINE.items() for name in names]
)
def test_a_folder_with_a_users_file_is_refused_and_left_as_it_is(
    given, tmp_path, capsys, command, name
):
    out = tmp_path / "mine"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text('{"mine": true}')
    before = state_of(tmp_path)
    for more in ([], ["--again"] if command == "clean" else []):
        assert main([*commands(given, out)[command], *more]) == 1
        said = capsys.readouterr().err.strip()
        assert said.startswith("drv: ")
        assert "name another folder" in said
        assert "\n" not in said
    assert state_of(tmp_path) == before


@pytest.mark.parametrize("command", MINE)
def test_a_users_files_beside_ours_stay_when_we_make_ours_anew(given, tmp_path, capsys, command):
    out = tmp_path / "out"
    assert main(commands(given, out)[command]) == 0
    ours = set(os.listdir(out))
    mine = ["part-00009.parquet", "part-x.parquet", "shard-00009.ids.npy", "shard-x", "notes.txt"]
    for name in mine:
        (out / name).write_text("mine")
    again = ["--again"] if command == "clean" else []
    if command == "rows":
        again = ["--max-tokens", "700"]
    assert main([*commands(given, out)[command], *again]) == 0
    assert set(os.listdir(out)) == ours | set(mine)
    assert {(out / name).read_text() for name in mine} == {"mine"}


def test_a_name_that_a_user_took_meanwhile_is_told_and_the_work_goes_on(given, tmp_path, capsys):
    raw.write_parquet(given / "raw.parquet", raw.many(6))
    out = tmp_path / "out"
    command = commands(given, out)
    assert main(command["clean"]) == 0
    record = json.loads((out / "stats.json").read_text())
    part = (out / "part-00000.parquet").read_bytes()
    record["files"].remove("part-00000.parquet")  # as if the job before had made none
    (out / "stats.json").write_text(json.dumps(record))
    (out / "part-00000.parquet").write_text("mine")
    assert main([*command["clean"], "--again"]) == 1
    said = capsys.readouterr().err
    assert "part-00000.parquet was not made by drv data clean" in said
    assert (out / "part-00000.parquet").read_text() == "mine"
    (out / "part-00000.parquet").rename(out / "moved")
    assert main(command["clean"]) == 0
    assert (out / "part-00000.parquet").read_bytes() == part
    assert (out / "moved").read_text() == "mine"

    assert main(commands(given, tmp_path / "rows")["rows"]) == 0
    index = json.loads((tmp_path / "rows" / "index.json").read_text())
    index["shards"] = 0
    (tmp_path / "rows" / "index.json").write_text(json.dumps(index))
    (tmp_path / "rows" / "shard-00000.json").write_text("mine")
    capsys.readouterr()
    assert main(commands(given, tmp_path / "rows")["rows"]) == 1
    assert "shard-00000.ids.npy was not made by drv data rows" in capsys.readouterr().err
    assert (tmp_path / "rows" / "shard-00000.json").read_text() == "mine"


def short_of(folder: Path) -> dict[str, str]:
    """Digests of a folder's files by name."""
    return {str(Path(name).relative_to(folder)): found for name, found in state_of(folder).items()}


def test_what_is_missing_of_our_own_is_made_again(given, tmp_path, capsys):
    for command in ("clean", "rows"):
        out = tmp_path / command
        assert main(commands(given, out)[command]) == 0
        whole = short_of(out)
        for name in sorted(set(whole) - {"stats.json", "index.json"}):
            (out / name).unlink()
            assert main(commands(given, out)[command]) == 0
            assert short_of(out) == whole
            if name.endswith(".npy"):
                (out / name).write_bytes((out / name).read_bytes()[:-3])
                assert main(commands(given, out)[command]) == 0
                assert short_of(out) == whole


def test_a_damaged_record_is_one_line_and_loses_nothing(given, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(commands(given, out)["clean"]) == 0
    record = json.loads((out / "stats.json").read_text())
    for change in (
        {"counts": {}},
        {"counts": {**record["counts"], "rows": "x"}},
        {"counts": {**record["counts"], "set_aside": 3}},
        {"counts": {**record["counts"], "turns": {"many": 1}}},
        {"problems": None},
        {"files": [1]},
    ):
        (out / "stats.json").write_text(json.dumps({**record, **change}))
        before = state_of(out)
        for command in (commands(given, out)["clean"], ["data", "report", str(out)]):
            capsys.readouterr()
            assert main(command) == 1
            said = capsys.readouterr().err
            assert str(out) in said
            assert "\n" not in said.strip()
        assert state_of(out) == before
    (out / "stats.json").write_text(json.dumps({**record, "counts": {}}))
    assert main([*commands(given, out)["clean"], "--again"]) == 0
    assert json.loads((out / "stats.json").read_text())["counts"] == record["counts"]


def test_a_damaged_plan_of_moves_is_one_line_and_loses_nothing(given, tmp_path, capsys):
    out = tmp_path / "out"
    (out / ".work").mkdir(parents=True)
    job = {"version": 1, "inputs": [], "rules": {}}
    (out / ".work" / "job.json").write_text(json.dumps(job))
    (out / "mine").write_text("mine")
    for moves in ([1], {"files": ["a"]}, {"files": 1, "old": [], "stats": {}}, {"old": ["mine"]}):
        (out / ".work" / "moves.json").write_text(json.dumps(moves))
        assert main([*commands(given, out)["clean"], "--again"]) == 1
        assert "moves.json is damaged; take it away" in capsys.readouterr().err
    (out / ".work" / "moves.json").unlink()
    assert main([*commands(given, out)["clean"], "--again"]) == 0
    assert (out / "mine").read_text() == "mine"


def test_a_shard_whose_record_is_damaged_is_made_again(given, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(commands(given, out)["rows"]) == 0
    whole = short_of(out)
    about = json.loads((out / "shard-00000.json").read_text())
    for change in (*({"counts": odd} for odd in (3, {"x": 1}, {"tokens": "x"})), {"lengths": 1}):
        (out / "shard-00000.json").write_text(json.dumps({**about, **change}))
        assert main(commands(given, out)["rows"]) == 0
        assert short_of(out) == whole
    index = json.loads((out / "index.json").read_text())
    (out / "index.json").write_text(json.dumps({**index, "shards": 10**15}))
    (out / "shard-00007.json").write_text("an earlier run's")
    (out / "shard-7.json").write_text("mine")
    assert main(commands(given, out)["rows"]) == 0
    assert short_of(out).keys() == whole.keys() | {"shard-7.json"}


@pytest.mark.parametrize("command", MINE)
def test_an_input_is_never_the_output(given, tmp_path, capsys, command, monkeypatch):
    out = tmp_path / "out"
    assert main(commands(given, out)[command]) == 0
    (tmp_path / "link").symlink_to(out)
    source = next(path for path in given.iterdir() if path.suffix in (".parquet", ".jsonl"))
    inside = out / source.name
    inside.write_bytes(source.read_bytes())
    (tmp_path / f"hard{source.suffix}").hardlink_to(inside)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / source.name).symlink_to(inside)
    before = state_of(tmp_path)
    monkeypatch.chdir(given)
    for read in (
        out,
        Path("../out"),
        given / ".." / "out",
        tmp_path / "link",
        inside,
        tmp_path / "link" / source.name,
        tmp_path / f"hard{source.suffix}",
        tmp_path / "linked",
    ):
        more = ["--again"] if command == "clean" else []
        for target in (out, tmp_path / "link"):
            capsys.readouterr()
            assert main([*commands(given, target, read)[command], *more]) == 1
            assert "another folder for the output" in capsys.readouterr().err
    assert main(commands(given, given / "new", given)[command]) == 1
    assert "lies in the input folder" in capsys.readouterr().err
    assert state_of(tmp_path) == before


def test_parts_that_are_links_lead_nobody_out_of_the_folder(given, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "job.json").write_text('{"version": 1, "inputs": [], "rules": {}}')
    (elsewhere / "stats.json").write_text("mine")
    before = state_of(elsewhere)
    out = tmp_path / "out"
    assert main(commands(given, out)["clean"]) == 0
    (out / ".work").symlink_to(elsewhere)
    assert main([*commands(given, out)["clean"], "--again"]) == 1
    assert ".work is a link" in capsys.readouterr().err
    (out / ".work").unlink()
    (out / "turns.svg").unlink()
    (out / "turns.svg").symlink_to(elsewhere / "stats.json")
    assert main([*commands(given, out)["clean"], "--again"]) == 0
    assert not (out / "turns.svg").is_symlink()
    assert state_of(elsewhere) == before


def test_convert_replaces_nothing_without_being_told_to(given, tmp_path, capsys):
    chats, out = str(given / "chats.jsonl"), tmp_path / "out.jsonl"
    assert main(["data", "convert", chats, str(out)]) == 0
    first = out.read_text()
    out.write_text("mine")
    assert main(["data", "convert", chats, str(out)]) == 1
    assert "exists; name another file, or replace it with --force" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert main(["data", "convert", chats, str(out), "--force"]) == 0
    assert out.read_text() == first
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    before = state_of(given)
    for place in ("/dev/null", tmp_path / "pipe.jsonl", tmp_path / "folder.jsonl", chats):
        capsys.readouterr()
        assert main(["data", "convert", chats, str(place), "--force"]) == 1
        said = capsys.readouterr().err
        assert "name a file" in said or "is the input" in said
    assert Path("/dev/null").is_char_device()
    assert state_of(given) == before
    assert sorted(os.listdir(tmp_path)) == ["folder.jsonl", "given", "out.jsonl", "pipe.jsonl"]


def test_export_replaces_nothing_without_being_told_to(tmp_path, capsys):
    with CassetteStore(tmp_path / "web.cassette") as store:
        store.put("search", {"q": "a"}, Recorded("A"))
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    export = ["cassette", "export", str(tmp_path / "web.cassette")]
    assert main([*export, str(out)]) == 1
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "mine"
    for place in ("/dev/null", tmp_path / "web.cassette"):
        assert main([*export, str(place), "--force"]) == 1
    assert Path("/dev/null").is_char_device()
    assert main([*export, str(out), "--force"]) == 0
    assert json.loads(out.read_text())["text"] == "A"
    assert main(["cassette", "merge", "/dev/null", str(tmp_path / "web.cassette")]) == 1
    assert "a cassette is a regular file" in capsys.readouterr().err


def test_a_models_folder_is_no_runs_folder(tmp_path, capsys):
    model = save_small_agent(tmp_path / "model")
    (model / "tensorboard").mkdir()
    (model / "tensorboard" / "mine").write_text("mine")
    before = state_of(tmp_path)
    for command in (
        ["train", "igpo", "--model.folder", str(model), "--out", str(model)],
        ["demo", "--out", str(model)],
    ):
        assert main(command) == 1
        assert "config.json is not the record of a run" in capsys.readouterr().err
    (tmp_path / "out" / "untrained").mkdir(parents=True)
    RunFolder(tmp_path / "run", {"trainer": "igpo"}).close()
    save_small_agent(tmp_path / "run" / "model")
    inside = ["train", "igpo", "--model.folder", str(tmp_path / "run" / "model")]
    assert main([*inside, "--out", str(tmp_path / "run")]) == 1
    assert "is also in the output folder" in capsys.readouterr().err
    assert {path: text for path, text in state_of(tmp_path).items() if path in before} == before


def test_a_checkpoint_takes_the_place_of_its_own_files_alone(tmp_path):
    folder = save_small_agent(tmp_path / "final")
    ours = set(os.listdir(folder))
    (folder / "notes.txt").write_text("mine")
    (folder / "results").mkdir()
    (folder / "results" / "eval.json").write_text("mine")
    save_small_agent(folder)
    assert set(os.listdir(folder)) == ours | {"notes.txt", "results"}
    assert (folder / "results" / "eval.json").read_text() == "mine"
    assert os.listdir(tmp_path) == ["final"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "one.tex").write_text("mine")
    with pytest.raises(ValueError, match="holds files that were not written here"):
        save_small_agent(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "one.tex").read_text() == "mine"
    remove_written(folder)
    assert set(os.listdir(folder)) == {"notes.txt", "results"}
    copy = tmp_path / "copy"
    save_small_agent(folder.with_name("other")).rename(copy)
    remove_written(copy)
    assert "config.json" in os.listdir(copy), "a copy under another name is a user's"


def test_a_killed_replacement_of_a_checkpoint_is_made_good(tmp_path):
    folder = save_small_agent(tmp_path / "final")
    (folder / "notes.txt").write_text("mine")
    folder.rename(tmp_path / ".final.1.old")  # killed before the new one took its place
    (tmp_path / ".final.1.tmp").mkdir()
    (tmp_path / ".final.1.tmp" / "model.safetensors").write_text("half")
    save_small_agent(folder)
    assert os.listdir(tmp_path) == ["final"]
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "model.safetensors").stat().st_size > 1000


def test_a_users_file_in_a_state_stays(tmp_path):
    import torch

    model = torch.nn.Linear(2, 2)
    optimiser = torch.optim.AdamW(model.parameters())
    states = StateFolder(tmp_path / "state")
    first = states.save(1, model, optimiser)
    (first / "notes.txt").write_text("mine")
    second = states.save(2, model, optimiser)
    assert (first / "notes.txt").read_text() == "mine"
    assert states.latest().path == second
    states.save(3, model, optimiser)
    assert StateFolder(tmp_path / "state").latest().step == 3
    assert os.listdir(first) == ["notes.txt"]
    assert not second.exists()
