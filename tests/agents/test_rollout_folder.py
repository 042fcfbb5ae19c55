"""Rollouts on the disk: streamed, gone on with, refused when they don't match."""

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from agents.engines.base import Sampling
from agents.engines.scripted import ScriptedEngine
from agents.rollout import EpisodeId, RolloutSettings, stream
from agents.rollout_folder import RolloutFolder
from drv_env import Rules, SettingError, Task
from drv_env.game import Game
from drv_env.protocol import Answer, render_turn
from drv_env.testing import FakeTools
from replay.store import read_trajectories, write_trajectories
from tests.patience import HANGS

TASKS = [Task(f"Who owns mill {n}?", (f"Owner{n}",)) for n in range(5)]
RULES = Rules(system_prompt="")


def answers(text: str) -> str:
    number = text.split("mill ")[1].split("?")[0]
    return render_turn("Known.", Answer(f"Owner{number}"))


async def play(folder, template, policy=answers, stop_after=None, on_each=None):
    game = Game(TASKS, FakeTools(), rules=RULES)
    settings = RolloutSettings(group_size=2, retries=0)
    seen = []
    rollouts = stream(
        game,
        ScriptedEngine(policy, template),
        template,
        TASKS,
        Sampling(64),
        settings,
        skip=folder.done,
    )
    async with aclosing(folder.keep(rollouts)) as kept:
        async for item in kept:
            seen.append(item.id)
            if on_each is not None:
                on_each(seen)
            if len(seen) == stop_after:
                break
    return seen


def test_every_episode_is_on_the_disk_with_its_place(template, tmp_path):
    folder = RolloutFolder(tmp_path / "out", TASKS, {"model": "m"})
    seen = asyncio.run(play(folder, template))
    stored = list(read_trajectories(folder.trajectories))
    places = [EpisodeId(item.provenance["task"], item.provenance["sample"]) for item in stored]
    assert sorted(places) == sorted(seen)
    assert len(seen) == 10
    for place, item in zip(places, stored, strict=True):
        assert item.task.question == TASKS[place.task].question


def test_a_rollout_that_was_stopped_goes_on_where_it_was(template, tmp_path):
    first = asyncio.run(play(RolloutFolder(tmp_path, TASKS), template, stop_after=3))
    again = RolloutFolder(tmp_path, TASKS)
    assert again.done == set(first)
    second = asyncio.run(play(again, template))
    assert len(second) == 7
    assert not set(first) & set(second)
    assert len(RolloutFolder(tmp_path, TASKS).done) == 10


def test_broken_episodes_are_set_apart_and_played_again_by_the_next_run(template, tmp_path):
    def fails(text: str) -> str:
        if "mill 3?" in text:
            raise ValueError("out of memory")
        return answers(text)

    folder = RolloutFolder(tmp_path, TASKS)
    asyncio.run(play(folder, template, fails))
    assert all(item.broken for item in read_trajectories(folder.broken))
    assert not any(item.broken for item in read_trajectories(folder.trajectories))
    again = RolloutFolder(tmp_path, TASKS)
    assert len(again.done) == 8
    seen = asyncio.run(play(again, template))
    assert sorted(seen) == [EpisodeId(3, 0), EpisodeId(3, 1)]


@pytest.mark.parametrize(
    ("tasks", "asked", "said"),
    [
        (TASKS[:4], {"model": "m"}, "another task_count, tasks"),
        (TASKS, {"model": "other"}, r"another model \(model was 'm', is 'other'\)"),
        (TASKS, {}, "another model"),
    ],
)
def test_a_folder_of_another_rollout_is_refused_and_says_what_differs(
    template, tmp_path, tasks, asked, said
):
    asyncio.run(play(RolloutFolder(tmp_path, TASKS, {"model": "m"}), template, stop_after=1))
    RolloutFolder(tmp_path, TASKS, {"model": "m"})
    with pytest.raises(SettingError, match=said):
        RolloutFolder(tmp_path, tasks, asked)


def test_folders_that_are_something_else_are_refused(tmp_path):
    RolloutFolder(tmp_path / "new", TASKS)
    assert not (tmp_path / "new").exists(), "a folder before anything was played"
    (tmp_path / "a" / "trajectories").mkdir(parents=True)
    with pytest.raises(SettingError, match=r"no rollout\.json"):
        RolloutFolder(tmp_path / "a", TASKS)
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="is a file"):
        RolloutFolder(tmp_path / "file", TASKS)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "rollout.json").write_text("{")
    with pytest.raises(SettingError, match="can't be read"):
        RolloutFolder(tmp_path / "b", TASKS)


KILLED = """
import asyncio, os, signal, sys
sys.path.insert(0, {tests!r})
from conftest import make_template
from test_rollout_folder import *

def die(seen):
    if len(seen) == 6:
        os.kill(os.getpid(), signal.SIGKILL)

folder = RolloutFolder({folder!r}, TASKS, flush_seconds=0)
asyncio.run(play(folder, make_template(), on_each=die))
"""


def test_a_killed_process_loses_at_most_the_part_it_was_gathering(template, tmp_path):
    out = tmp_path / "out"
    program = KILLED.format(tests=str(Path(__file__).parent), folder=str(out))
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=HANGS)
    assert done.returncode == -signal.SIGKILL
    folder = RolloutFolder(out, TASKS)
    assert len(folder.done) == 6  # each was a part of its own
    rest = asyncio.run(play(folder, template))
    assert len(rest) == 4
    assert len(list(read_trajectories(folder.trajectories))) == 10
    assert json.loads((out / "rollout.json").read_text())["task_count"] == 5
    assert not list(out.glob("**/.*.tmp"))


def test_parts_are_closed_in_time_while_the_last_episode_goes_on(template, tmp_path):
    folder = RolloutFolder(tmp_path, TASKS, flush_seconds=0.02)

    class Last(ScriptedEngine):
        async def generate(self, ids, sampling):
            text = template.pieces.decode(ids)
            if "mill 4?" in text:
                while not list(tmp_path.glob("*/part-*.parquet")):  # noqa: ASYNC110 (a disk)
                    await asyncio.sleep(0.01)
            return await super().generate(ids, sampling)

    async def run():
        game = Game(TASKS, FakeTools(), rules=RULES)
        rollouts = stream(game, Last(answers, template), template, TASKS, Sampling(64))
        return [item.id.task async for item in folder.keep(rollouts)]

    assert asyncio.run(asyncio.wait_for(run(), HANGS))[-1] == 4


def test_one_process_fills_a_folder_at_a_time(template, tmp_path):
    async def run():
        first, second = RolloutFolder(tmp_path, TASKS), RolloutFolder(tmp_path, TASKS)
        game = Game(TASKS, FakeTools(), rules=RULES)

        def rollouts():
            engine = ScriptedEngine(answers, template)
            return stream(game, engine, template, TASKS, Sampling(64))

        async with aclosing(first.keep(rollouts())) as kept:
            await anext(kept)
            with pytest.raises(SettingError, match="another process fills"):
                await anext(second.keep(rollouts()))
        with pytest.raises(SettingError, match="meanwhile"):
            await anext(second.keep(rollouts()))
        again = RolloutFolder(tmp_path, TASKS)
        assert len(again.done) == 1

    asyncio.run(run())


def test_copies_and_foreign_trajectories_are_told(template, tmp_path):
    asyncio.run(play(RolloutFolder(tmp_path, TASKS), template))
    (part,) = (tmp_path / "trajectories").glob("part-*.parquet")
    copied = part.with_name("backup.parquet")
    copied.write_bytes(part.read_bytes())
    with pytest.raises(SettingError, match="twice"):
        RolloutFolder(tmp_path, TASKS)
    copied.unlink()
    items = [replace(item, provenance={}) for item in read_trajectories(part)]
    write_trajectories(copied, items)
    with pytest.raises(SettingError, match="another origin"):
        RolloutFolder(tmp_path, TASKS)
    copied.unlink()
    (tmp_path / "rollout.json").write_text("[]")
    with pytest.raises(SettingError, match="no JSON object"):
        RolloutFolder(tmp_path, TASKS)
