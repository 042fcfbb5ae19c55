"""The folder of a run: what stays when it goes on, and who may fill it."""

import json
import resource

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from drv_env import SettingError
from drv_env.errors import DiskError
from trainers.run_folder import RunFolder, recorded_config, refuse_busy, refuse_foreign


def fill(path, steps, done=None):
    folder = RunFolder(path, {"seed": 1}, done)
    for step in steps:
        folder.log("rl", step, {"loss": float(step)})
    folder.close()


def steps_of(path):
    return [json.loads(line)["step"] for line in (path / "metrics.jsonl").open()]


def shown(path):
    board = EventAccumulator(str(path / "tensorboard"))
    board.Reload()
    return [(event.step, event.value) for event in board.Scalars("rl/loss")]


def test_going_on_takes_back_the_steps_that_are_taken_again(tmp_path):
    fill(tmp_path, [1, 2, 3])
    with (tmp_path / "metrics.jsonl").open("a") as lines:
        lines.write('{"phase": "rl", "step": 2, "lo')  # a kill cut it
    fill(tmp_path, [3, 4], done=2)
    assert steps_of(tmp_path) == [1, 2, 3, 4]
    assert shown(tmp_path) == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]


def test_beginning_anew_forgets_all(tmp_path):
    fill(tmp_path, [1, 2, 3])
    fill(tmp_path, [1])
    assert steps_of(tmp_path) == [1]
    assert shown(tmp_path) == [(1, 1.0)]


def test_one_process_at_a_time(tmp_path):
    folder = RunFolder(tmp_path, {})
    with pytest.raises(SettingError, match="another process is at work"):
        RunFolder(tmp_path, {})
    with pytest.raises(SettingError, match="another process is at work"):
        refuse_busy(tmp_path)
    folder.close()
    refuse_busy(tmp_path)
    RunFolder(tmp_path, {}).close()


def test_a_folder_that_can_never_be_made_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="file is a file"):
        refuse_foreign(tmp_path / "file" / "run")
    refuse_foreign(tmp_path / "not" / "yet")


def test_a_damaged_record_of_the_settings_is_named(tmp_path):
    assert recorded_config(tmp_path) is None
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(SettingError, match=r"config\.json can't be read"):
        recorded_config(tmp_path)


def test_what_was_logged_is_read_by_phase_whichever_life_wrote_it(tmp_path):
    fill(tmp_path, [1, 2])
    folder = RunFolder(tmp_path, {}, done=2)
    folder.log("evaluation", 2, {"success": 0.5})
    folder.log("rl", 3, {"loss": 3.0})
    assert [line["step"] for line in folder.logged("rl")] == [1, 2, 3]
    assert folder.logged("evaluation") == [{"phase": "evaluation", "step": 2, "success": 0.5}]
    assert folder.logged("sft") == []
    folder.close()


@pytest.mark.parametrize("name", ["metrics.jsonl", "tensorboard"])
def test_a_full_disk_leaves_whole_lines_and_whole_events(tmp_path, name):
    folder = RunFolder(tmp_path, {})
    folder.log("rl", 1, {"loss": 1.0})
    files = [tmp_path / "metrics.jsonl", *(tmp_path / "tensorboard").iterdir()]
    # the metrics are written first; made long, they are what does not fit
    values = {"loss": 2.0, **({"x" * 500: 0.0} if name == "metrics.jsonl" else {})}
    room = max(file.stat().st_size for file in files) + 10
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(DiskError, match=rf"{name}.* can't be written: no larger file"):
            folder.log("rl", 2, values)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    folder.log("rl", 3, {"loss": 3.0})
    folder.close()
    assert set(steps_of(tmp_path)) == {1, 3} | ({2} if name == "tensorboard" else set())
    assert shown(tmp_path) == [(1, 1.0), (3, 3.0)]


def test_a_users_files_in_a_runs_folder_stay(tmp_path):
    fill(tmp_path, [1])
    mine = [tmp_path / "notes.txt", tmp_path / "tensorboard" / "notes.txt"]
    mine.append(tmp_path / "tensorboard" / "events.out.tfevents.1.mine")
    for path in mine:
        path.write_text("mine")
    fill(tmp_path, [1, 2])
    assert {path.read_text() for path in mine} == {"mine"}
    assert steps_of(tmp_path) == [1, 2]
