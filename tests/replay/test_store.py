"""Trajectories survive Parquet whole, and files are whole or absent."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drv_env import Ending, Rules, Task, TaskDataError, TurnReward
from drv_env.env import DeepResearchEnv
from drv_env.errors import JudgeError
from drv_env.protocol import Answer, Visit, render_turn
from drv_env.testing import FakeTools
from replay.chat_templates import QWEN3_THINKING
from replay.schema import check_schema, from_row, row_bytes, to_row
from replay.sft_rows import transcribe
from replay.store import SCHEMA, read_trajectories, write_trajectories
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from replay.transcript import Transcript


def play(*turns: str, tools=None, outcome=None) -> Trajectory:
    task = Task("Who?", ("Ada", "Ada L."), world="w", metadata={"hops": 2})
    arguments = {} if outcome is None else {"outcome": outcome}
    env = DeepResearchEnv([task], tools or FakeTools(), rules=Rules(max_turns=9), **arguments)
    env.reset(seed=0)
    rewards = [env.step(turn)[4]["turn_reward"] for turn in turns]
    return Trajectory.of(env.episode, rewards, None, {"agent": "test"})


VISIT = render_turn("I look.", Visit(("https://e.org",), "owner"))
ANSWER = render_turn("Known.", Answer("Ada"))


def test_everything_comes_back(tmp_path):
    trajectory = play(VISIT, "nonsense", VISIT, ANSWER)
    path = tmp_path / "deep" / "t.parquet"
    assert write_trajectories(path, [trajectory]) == 1
    (again,) = read_trajectories(path)
    assert again == trajectory
    assert [turn.action for turn in again.turns] == ["visit", None, "visit", "answer"]
    assert [turn.duplicate for turn in again.turns] == [False, False, True, False]
    assert again.outcome == 1.0


def test_none_and_zero_stay_apart(tmp_path):
    trajectory = play(VISIT, ANSWER)
    rewards = (TurnReward(0.0, True, None), TurnReward(None, True, 0.0))
    trajectory = Trajectory(**{**_fields(trajectory), "rewards": rewards})
    write_trajectories(tmp_path / "t.parquet", [trajectory])
    (again,) = read_trajectories(tmp_path / "t.parquet")
    assert again.rewards == rewards


def test_a_broken_episode_keeps_its_reason_and_no_outcome(tmp_path):
    def judge(answer, task):
        raise JudgeError("the judge is away")

    trajectory = play(ANSWER, outcome=judge)
    assert trajectory.broken
    write_trajectories(tmp_path / "t.parquet", [trajectory])
    (again,) = read_trajectories(tmp_path / "t.parquet")
    assert again.ending is Ending.BROKEN
    assert again.outcome is None
    assert "judge is away" in again.error


def test_transcripts_come_back_to_the_id(tmp_path, bpe):
    template = ChatTemplate(bpe, QWEN3_THINKING)
    trajectory = play(VISIT, ANSWER)
    transcript = transcribe(trajectory, template)
    copy = Transcript(template)
    copy.prompt(trajectory.opening)
    for index, span in enumerate(s for s in transcript.spans if s.kind == "completion"):
        ids = transcript.ids[span.start : span.stop]
        copy.completion(ids, np.linspace(-3, 0, len(ids)), 7, "stop")
        if index == 0:
            copy.observation(
                f"<tool_response>\n{trajectory.turns[0].observation}\n</tool_response>"
            )
    trajectory = Trajectory(**{**_fields(trajectory), "transcript": copy})
    write_trajectories(tmp_path / "t.parquet", [trajectory, play(ANSWER)])
    again, other = read_trajectories(tmp_path / "t.parquet")
    assert other.transcript is None
    np.testing.assert_array_equal(again.transcript.ids, transcript.ids)
    assert again.transcript.spans == copy.spans
    for mine, theirs in zip(again.transcript.log_probs, copy.log_probs, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert again.transcript.weight_versions == [7, 7]


@pytest.mark.parametrize("reencoded", [False, True])
def test_what_was_encoded_again_from_text_stays_marked(tmp_path, bpe, reencoded):
    template = ChatTemplate(bpe, QWEN3_THINKING)
    trajectory = play(ANSWER)
    own = Transcript(template, reencoded=reencoded)
    own.prompt(trajectory.opening)
    own.completion(template.encode_turn(ANSWER))
    assert Transcript.from_record(own.to_record()).reencoded is reencoded
    trajectory = Trajectory(**{**_fields(trajectory), "transcript": own})
    write_trajectories(tmp_path / "t.parquet", [trajectory])
    (again,) = read_trajectories(tmp_path / "t.parquet")
    assert again.transcript.reencoded is reencoded


def test_lone_surrogates_are_replaced_not_fatal(tmp_path):
    trajectory = play("<think>a\ud800b</think><answer>\udfff</answer>")
    write_trajectories(tmp_path / "t.parquet", [trajectory])
    (again,) = read_trajectories(tmp_path / "t.parquet")
    assert again.turns[0].thought == "a\ufffdb"


def test_a_failure_leaves_nothing_behind(tmp_path):
    def broken():
        yield play(ANSWER)
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        write_trajectories(tmp_path / "t.parquet", broken())
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_the_file_that_was_there(tmp_path):
    path = tmp_path / "t.parquet"
    write_trajectories(path, [play(ANSWER)])

    def broken():
        raise OSError("disk gone")
        yield

    with pytest.raises(OSError, match="disk gone"):
        write_trajectories(path, broken())
    assert len(list(read_trajectories(path))) == 1


def test_other_files_are_refused_by_name(tmp_path):
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(TaskDataError, match=r"other\.parquet.*no trajectory file"):
        list(read_trajectories(other))
    text = tmp_path / "text.parquet"
    text.write_text("hello")
    with pytest.raises(TaskDataError, match=r"text\.parquet can't be read"):
        list(read_trajectories(text))
    newer = tmp_path / "newer.parquet"
    schema = SCHEMA.with_metadata({"drv_schema_version": "99"})
    pq.write_table(pa.Table.from_pylist([], schema), newer)
    with pytest.raises(TaskDataError, match="version 99"):
        list(read_trajectories(newer))


def messages(**fields):
    return pa.large_list(pa.struct(list(fields.items())))


@pytest.mark.parametrize(
    ("column", "kind", "works"),
    [
        ("question", pa.large_string(), True),
        ("question", pa.dictionary(pa.int8(), pa.string()), True),
        ("question", pa.null(), True),
        ("question", pa.binary(), False),
        ("question", pa.int32(), False),
        ("outcome", pa.float32(), True),
        ("outcome", pa.int64(), False),
        ("turn_count", pa.int64(), True),
        ("turn_count", pa.bool_(), False),
        ("answers", pa.large_list(pa.string()), True),
        ("answers", pa.list_(pa.int32()), False),
        ("answers", pa.string(), False),
        ("opening", messages(role=pa.string(), content=pa.large_string()), True),
        ("opening", messages(role=pa.int32(), content=pa.string()), False),
        ("opening", messages(role=pa.string(), content=pa.int32()), False),
        ("opening", messages(content=pa.string()), True),
        ("opening", pa.list_(pa.string()), False),
    ],
)
def test_columns_of_a_like_type_are_read_and_others_refused(column, kind, works):
    there = SCHEMA.set(SCHEMA.get_field_index(column), pa.field(column, kind))
    if works:
        check_schema(there)
        return
    with pytest.raises(TaskDataError, match=f"column '{column}' is of type"):
        check_schema(there)


def test_a_row_without_a_field_is_told_which():
    row = to_row(play(ANSWER))
    assert from_row(row).answer == "Ada"
    with pytest.raises(TaskDataError, match="there is no 'question'"):
        from_row({name: value for name, value in row.items() if name != "question"})


def test_the_size_of_a_row_by_hand():
    turns = [
        {"text": "12345", "thought": "12", "observation": "123"},
        {"text": "1", "thought": "", "observation": None},
    ]
    assert row_bytes({"turns": turns, "transcript": None}) == 1_000 + 2 * 200 + 10 + 1
    counted = {"turns": turns, "transcript": {"ids": [7, 8, 9]}}
    assert row_bytes(counted) == 1_000 + 2 * 200 + 10 + 1 + 3 * 8


def test_only_an_episode_that_is_over_makes_a_trajectory():
    env = DeepResearchEnv([("Who?", "Ada")], FakeTools())
    env.reset(seed=0)
    env.step(VISIT)
    with pytest.raises(ValueError, match="not over"):
        Trajectory.of(env.episode, [])


def _fields(trajectory: Trajectory) -> dict:
    return {name: getattr(trajectory, name) for name in Trajectory.__slots__}
