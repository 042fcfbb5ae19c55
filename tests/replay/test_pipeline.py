"""The cleaning job: output, stats, filter, resampling, damage, kills."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from drv_env.cassette import CassetteStore, Recorded
from drv_env.errors import JudgeError, SettingError, TaskDataError
from drv_env.rewards.outcome import exact_match, token_f1
from replay import pipeline, read
from replay.clean import CleanRules
from replay.clean_stats import PUBLISHED, PUBLISHED_ROWS, CleanStats, histogram_svg, report
from replay.cleaned_rows import SCHEMA, read_cleaned
from replay.correctness import GIVE_UP_AFTER, NO_GOLD, CorrectnessFilter
from replay.journal import Journal
from replay.pipeline import CleanJob, read_result, run_clean
from replay.read import read_raw
from replay.resample import Resampling
from tests.replay import raw_rows as raw


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(read, "CHUNK_ROWS", 8)


@pytest.fixture
def source(tmp_path):
    return raw.write_parquet(tmp_path / "raw.parquet", raw.many(60))


def job(source, tmp_path, **settings):
    settings = {"workers": 1, "system_prompt": "S", **settings}
    return CleanJob((source,), tmp_path / "out", **settings)


def rows_in(folder):
    return [row for table in read_cleaned(folder) for row in table.to_pylist()]


def contents(folder):
    return {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.is_file()}


EXACT = CorrectnessFilter("exact", exact_match)


# ---- output ---------------------------------------------------------------------------


def test_the_output_has_the_documented_schema_in_the_input_order(source, tmp_path):
    result = run_clean(job(source, tmp_path))
    out = tmp_path / "out"
    assert sorted(file.name for file in out.iterdir()) == [
        "part-00000.parquet",
        "stats.json",
        "turns.svg",
    ]
    file = pq.ParquetFile(out / "part-00000.parquet")
    assert file.schema_arrow.equals(SCHEMA, check_metadata=True)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    rows = rows_in(out)
    assert [row["row"] for row in rows] == list(range(60))
    assert {row["file"] for row in rows} == {str(source)}
    assert rows[0]["messages"][0] == {"role": "system", "content": "S"}
    assert (rows[0]["pruned"], rows[0]["repeated"], rows[0]["turns"]) == (1, 1, 4)
    assert (rows[4]["turns"], rows[4]["weight"], rows[4]["copy"]) == (84, 2, 0)
    assert (rows[4]["gt"], rows[4]["answer"]) == ("Long Bridge", "Long bridge.")
    assert rows[4]["outcome"] is None
    assert result.stats.kept == 60


def test_the_output_is_read_again_as_the_clean_layout_and_cleaning_it_changes_nothing(
    source, tmp_path
):
    run_clean(job(source, tmp_path))
    again = CleanJob((tmp_path / "out",), tmp_path / "twice", workers=1)
    assert run_clean(again).problems == ()
    first, second = rows_in(tmp_path / "out"), rows_in(tmp_path / "twice")
    assert [row["messages"] for row in first] == [row["messages"] for row in second]
    trajectories = [row for _, row in read_raw(tmp_path / "out" / "part-00000.parquet")]
    assert {t.system_prompt for t in trajectories} == {"S"}


@pytest.mark.parametrize("prompt", [None, "", "P"])
def test_the_system_prompt_is_kept_left_out_or_set(tmp_path, prompt):
    made = [{**raw.row(), "system_prompt": "own"}]
    run_clean(job(raw.write_parquet(tmp_path / "r.parquet", made), tmp_path, system_prompt=prompt))
    (row,) = rows_in(tmp_path / "out")
    system = [m["content"] for m in row["messages"] if m["role"] == "system"]
    assert system == {None: ["own"], "": [], "P": ["P"]}[prompt]
    assert row["turns"] == 1


def test_two_workers_give_what_one_gives(source, tmp_path):
    run_clean(job(source, tmp_path, correctness=EXACT))
    other = CleanJob((source,), tmp_path / "two", correctness=EXACT, system_prompt="S", workers=2)
    run_clean(other)
    assert contents(tmp_path / "out") == contents(tmp_path / "two")


def test_copies_and_shuffle(source, tmp_path):
    settings = {"copies": True, "shuffle": 3, "resampling": Resampling.parse("50:1,70:2,3")}
    run_clean(job(source, tmp_path, **settings))
    rows = rows_in(tmp_path / "out")
    places = [(row["row"], row["copy"]) for row in rows]
    assert len(set(places)) == len(places) == 36 + 2 * 12 + 3 * 12
    assert places != sorted(places)
    assert {row["weight"] for row in rows} == {1}
    stats = read_result(tmp_path / "out").stats
    assert (stats.kept, stats.instances.total()) == (60, len(rows))


def test_long_output_goes_to_several_files(source, tmp_path, monkeypatch):
    monkeypatch.setattr("replay.cleaned_rows._GROUP_BYTES", 20_000)
    write = pipeline.write_shards
    monkeypatch.setattr(pipeline, "write_shards", lambda t, f: write(t, f, 60_000))
    result = run_clean(job(source, tmp_path))
    assert len([name for name in result.files if name.startswith("part-")]) > 3
    assert [row["row"] for row in rows_in(tmp_path / "out")] == list(range(60))


# ---- stats ----------------------------------------------------------------------------


def test_stats_say_what_became_of_the_rows(source, tmp_path):
    run_clean(job(source, tmp_path, correctness=EXACT))
    found = json.loads((tmp_path / "out" / "stats.json").read_text())
    figures, counts = found["figures"], found["counts"]
    assert (figures["rows"], figures["cleaned"], found["kept"]) == (60, 60, 51)
    assert counts["dropped"] == {"wrong_answer": 9}
    assert counts["examples"]["wrong_answer"][0].endswith("raw.parquet row 0: scored 0")
    assert (figures["pruned trajectories"], counts["pruned"]) == (6, {"PythonInterpreter": 6})
    assert (figures["repeats: calls"], counts["repeated"]) == (6, {"search": 6})
    assert figures["retention of the filter"] == pytest.approx(51 / 60)
    turns = [row["turns"] for row in rows_in(tmp_path / "out")]
    assert figures["over 50 turns, before"] == sum(n > 50 for n in turns) / 51
    heavy = sum(2 for n in turns if n > 50)
    assert figures["over 50 turns, after"] == heavy / (heavy + sum(n <= 50 for n in turns))
    assert found["published"] is None
    assert found["schema_version"] == 1


def test_the_full_set_is_shown_beside_the_published_figures():
    stats = CleanStats(rows=PUBLISHED_ROWS, cleaned=10_000, right=9_365)
    stats.dropped["wrong_answer"] = 635
    stats.turns.update({40: 3_720, 80: 4_400, 120: 1_245})
    stats.instances.update({40: 3_720, 80: 8_800, 120: 6_225})
    found = report(stats)
    assert found["published"] == PUBLISHED
    for name in PUBLISHED:
        if "pruned" not in name and "repeats" not in name:
            assert found["figures"][name] == pytest.approx(PUBLISHED[name], abs=2e-4), name


def test_stats_survive_as_json_and_add_up():
    one = CleanStats(rows=2, examples={"no_question": ["a", "b"]})
    one.turns[3] = 2
    two = CleanStats.from_record(json.loads(json.dumps(one.to_record())))
    assert two == one
    one.add(two)
    assert (one.rows, one.turns[3], one.examples) == (4, 4, {"no_question": ["a", "b", "a"]})


@pytest.mark.parametrize("turns", [{}, {0: 1}, {7: 3, 250: 1}])
def test_the_plot_is_well_formed(turns):
    stats = CleanStats()
    stats.turns.update(turns)
    stats.instances.update(turns)
    assert ElementTree.fromstring(histogram_svg(stats)).tag.endswith("svg")


# ---- the correctness filter -----------------------------------------------------------


def test_f1_with_a_threshold(source, tmp_path):
    run_clean(job(source, tmp_path, correctness=CorrectnessFilter("f1", token_f1, 0.4)))
    outcomes = {row["outcome"] for row in rows_in(tmp_path / "out")}
    assert outcomes == {0.5, 1.0}


class RecordedJudge:
    """Judges like people do, keeps verdicts, may fail; counts what it is asked."""

    def __init__(self, store, fails=lambda question: False):
        self.store, self.fails = store, fails
        self.asked = self.now = self.most = 0

    async def __call__(self, answer, task):
        import asyncio

        known = await self.store.aget("judge", {"q": task.question, "a": answer})
        if known is not None:
            return float(known.text)
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)  # lets the others in
            if self.fails(task.question):
                raise JudgeError("unreachable")
            score = exact_match(answer, task)
            await self.store.aput("judge", {"q": task.question, "a": answer}, Recorded(str(score)))
            return score
        finally:
            self.now -= 1


def test_a_second_run_with_the_same_verdicts_costs_nothing(source, tmp_path):
    with CassetteStore(tmp_path / "verdicts") as store:
        judge = RecordedJudge(store)
        chosen = CorrectnessFilter("judge m", judge, at_once=3)
        run_clean(job(source, tmp_path, correctness=chosen))
        assert (judge.asked, judge.most) == (60, 3)
        first = contents(tmp_path / "out")
        result = run_clean(job(source, tmp_path, correctness=chosen, again=True))
        assert judge.asked == 60
        assert not result.reused
        assert contents(tmp_path / "out") == first
        assert run_clean(job(source, tmp_path, correctness=chosen)).reused


def test_rows_whose_judge_failed_are_set_aside_and_asked_again(source, tmp_path):
    with CassetteStore(tmp_path / "verdicts") as store:
        judge = RecordedJudge(store, fails=lambda question: "(3" in question)
        chosen = CorrectnessFilter("judge m", judge)
        result = run_clean(job(source, tmp_path, correctness=chosen))
        assert result.stats.set_aside == {"judge failed": 11}
        aside = pq.read_table(tmp_path / "out" / "_set_aside.parquet").to_pylist()
        assert {row["row"] for row in aside} == {3, *range(30, 40)}
        assert {row["why"] for row in aside} == {"unreachable"}
        assert result.stats.kept + result.stats.dropped["wrong_answer"] + 11 == 60
        judge.fails, judge.asked = (lambda question: False), 0
        result = run_clean(job(source, tmp_path, correctness=chosen))
        assert judge.asked == 11
        assert not result.stats.set_aside
        assert not (tmp_path / "out" / "_set_aside.parquet").exists()
        assert len(rows_in(tmp_path / "out")) == 51


def test_a_lost_judge_stops_the_job_which_goes_on_later(source, tmp_path):
    with CassetteStore(tmp_path / "verdicts") as store:
        judge = RecordedJudge(store, fails=lambda question: "(2" in question or "(3" in question)
        chosen = CorrectnessFilter("judge m", judge, at_once=1)
        many = raw.write_parquet(source, raw.many(60)[20:40] * 2)
        with pytest.raises(JudgeError, match=f"{GIVE_UP_AFTER}|in a row"):
            _with_chunk(256, lambda: run_clean(job(many, tmp_path, correctness=chosen)))
        judge.fails = lambda question: False
        result = _with_chunk(256, lambda: run_clean(job(many, tmp_path, correctness=chosen)))
        assert result.stats.rows == 40


def _with_chunk(rows, work):
    before, read.CHUNK_ROWS = read.CHUNK_ROWS, rows
    try:
        return work()
    finally:
        read.CHUNK_ROWS = before


def test_rows_without_a_gold_answer_are_set_aside_by_a_filter_only(tmp_path):
    rows = [{"messages": raw.messages(raw.search("a")), "request_id": "r", "num_turns": 2}]
    source = raw.write_parquet(tmp_path / "r.parquet", rows)
    assert run_clean(job(source, tmp_path)).stats.kept == 1
    result = run_clean(job(source, tmp_path, correctness=EXACT, again=True))
    assert (result.stats.kept, result.stats.set_aside) == (0, {NO_GOLD: 1})
    assert run_clean(job(source, tmp_path, correctness=EXACT)).reused


# ---- damage ---------------------------------------------------------------------------


def test_ten_damaged_inputs_each_give_one_message_or_a_counted_drop(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    good = raw.row(raw.search("a"))
    cut = raw.write_parquet(folder / "01-truncated.parquet", [good])
    cut.write_bytes(cut.read_bytes()[:-30])
    order = raw.row(raw.search("a"))
    order["messages"][2]["role"] = "assistant"
    order["messages"][2]["content"] = raw.search("b")
    surrogate = raw.row((raw.search("a"), "a lone \ud800 half"))
    raw.write_parquet(folder / "02-null.parquet", [good, {"meta": good["meta"], "messages": None}])
    raw.write_lines(folder / "03-order.jsonl", [good, order])
    huge = raw.row((raw.search("a"), "x" * 5_000_000))
    raw.write_lines(folder / "04-huge.jsonl", [good, huge])
    raw.write_lines(folder / "05-types.jsonl", [{**good, "messages": 7}, [1], good])
    clean = {"question": raw.QUESTION, "gt": "A", "messages": good["messages"]}
    raw.write_lines(folder / "06-mixed.jsonl", [good, clean, {"text": "?"}])
    (folder / "07-empty.parquet").write_bytes(b"")
    raw.write_lines(folder / "08-surrogates.jsonl", [surrogate])
    (folder / "09-notes.txt").write_text("stray")
    raw.write_parquet(folder / "10-column.parquet", [{"meta": good["meta"]}])

    result = run_clean(job(folder, tmp_path))
    told = [Path(problem.split(": ")[0]).name for problem in result.problems]
    assert sorted(told) == [
        "01-truncated.parquet",
        "07-empty.parquet",
        "09-notes.txt",
        "10-column.parquet",
    ]
    assert result.stats.dropped == {
        "no_messages": 1,
        "roles_out_of_order": 1,
        "message_too_long": 1,
        "wrong_type": 1,
        "unreadable": 1,
        "unknown_layout": 1,
    }
    rows = rows_in(tmp_path / "out")
    assert len(rows) == result.stats.kept == 7
    assert "a lone � half" in rows[-1]["messages"][3]["content"]


def test_with_nothing_to_read_there_is_one_clear_error(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(TaskDataError, match=r"nothing to read: .*none of the kinds"):
        run_clean(job(tmp_path / "a.txt", tmp_path))
    (tmp_path / "b.jsonl").write_text("")
    with pytest.raises(TaskDataError, match=r"no rows.*the file is empty"):
        run_clean(job(tmp_path / "b.jsonl", tmp_path))


def test_a_job_that_keeps_nothing_says_why_and_writes_nothing(tmp_path):
    (tmp_path / "a.jsonl").write_text("nonsense\n" * 20)
    told = r"no row was kept, and nothing written: 20 of 20 rows were dropped as unreadable \(.*a"
    with pytest.raises(TaskDataError, match=told):
        run_clean(job(tmp_path / "a.jsonl", tmp_path))
    assert not (tmp_path / "out").exists()
    wrong = raw.write_parquet(tmp_path / "w.parquet", [raw.row(raw.search("a"), gold="Other")])
    with pytest.raises(TaskDataError, match="1 of 1 rows were dropped as wrong_answer"):
        run_clean(job(wrong, tmp_path, correctness=EXACT))
    assert not (tmp_path / "out").exists()
    good = raw.write_parquet(tmp_path / "g.parquet", [raw.row(raw.search("a"))])
    run_clean(job(good, tmp_path))
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    with pytest.raises(TaskDataError, match="wrong_answer"):
        run_clean(job(wrong, tmp_path, correctness=EXACT, again=True))
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(
    "settings",
    [{"workers": 0}, {"inputs": ()}, {"out": Path(__file__)}, {"out": Path(__file__).parent}],
)
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(SettingError):
        CleanJob(**{"inputs": (Path(__file__).parent,), "out": Path("nowhere"), **settings})
    with pytest.raises(SettingError, match="keep_from"):
        CorrectnessFilter("x", exact_match, 0.0)


# ---- kills ----------------------------------------------------------------------------


def test_a_folder_with_another_job_is_refused(source, tmp_path):
    run_clean(job(source, tmp_path))
    other = {"rules": CleanRules(repeats="keep"), "shuffle": 1}
    with pytest.raises(SettingError, match="the result of a job with other rules, shuffle"):
        run_clean(job(source, tmp_path, **other))
    run_clean(job(source, tmp_path, **other, again=True))
    assert sum(row["repeated"] for row in rows_in(tmp_path / "out")) == 0
    raw.write_parquet(source, raw.many(10))
    with pytest.raises(SettingError, match="other inputs"):
        run_clean(job(source, tmp_path, **other))


def interrupted_after(count, error=KeyboardInterrupt):
    told = []

    def tell(stage, done, total):
        told.append(stage)
        if len(told) == count:
            raise error

    return tell


@pytest.mark.parametrize("count", [1, 5, 8, 9, 40, 69, 75])
def test_a_job_stopped_anywhere_goes_on_to_the_same_result(source, tmp_path, count):
    run_clean(CleanJob((source,), tmp_path / "whole", correctness=EXACT, shuffle=1, workers=1))
    again = CleanJob((source,), tmp_path / "out", correctness=EXACT, shuffle=1, workers=1)
    with pytest.raises(KeyboardInterrupt):
        run_clean(again, interrupted_after(count))
    assert not (tmp_path / "out" / "stats.json").exists()
    run_clean(again)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not (tmp_path / "out" / ".work").exists()


def test_a_job_stopped_while_moving_goes_on_to_the_same_result(source, tmp_path, monkeypatch):
    run_clean(job(source, tmp_path))
    expected = contents(tmp_path / "out")
    replace, moved = os.replace, []

    def once(old, new):
        if Path(old).parent.name == "done":
            moved.append(new)
            if len(moved) == 2:
                raise KeyboardInterrupt
        replace(old, new)

    monkeypatch.setattr(os, "replace", once)
    with pytest.raises(KeyboardInterrupt):
        run_clean(job(source, tmp_path, again=True))
    monkeypatch.undo()
    monkeypatch.setattr(read, "CHUNK_ROWS", 8)
    assert run_clean(job(source, tmp_path)).reused
    assert contents(tmp_path / "out") == expected


def test_a_line_cut_off_in_the_journal_is_done_again(tmp_path):
    journal = Journal(tmp_path, {"a": 1})
    journal.begin()
    journal.add("chunks", {"chunk": 0})
    with (tmp_path / ".work" / "chunks.jsonl").open("a") as file:
        file.write('\n{"chunk": 1, "cou')
    journal.add("chunks", {"chunk": 2})
    assert sorted(journal.lines("chunks")) == [0, 2]


KILLED = """
import sys
from pathlib import Path
from replay import read
from replay.pipeline import CleanJob, run_clean
read.CHUNK_ROWS = 8

def tell(stage, done, total):
    print(stage, done, flush=True)
    sys.stdin.readline()  # goes on when the test says so

if __name__ == "__main__":
    job = CleanJob((Path(sys.argv[1]),), Path(sys.argv[2]), shuffle=5, workers=2)
    run_clean(job, tell)
"""


def test_kill_9_in_the_middle_loses_nothing_and_leaves_no_worker(tmp_path):
    source = raw.write_lines(tmp_path / "raw.jsonl", raw.many(200))
    out = tmp_path / "out"
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, script, source, out],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    journal = Journal(out, {})
    while True:
        told = process.stdout.readline()
        assert told, "the job ended before it could be killed"
        if len(journal.lines("chunks")) >= 4:
            break
        process.stdin.write("\n")
        process.stdin.flush()
    workers = _children(process.pid)
    assert len(workers) >= 2
    ends = [os.pidfd_open(pid) for pid in workers]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for end in ends:  # readable when its process is over
        over, _, _ = select.select([end], [], [], 60)
        os.close(end)
        assert over, "a worker outlived the job"
    finished = journal.lines("chunks")
    assert 4 <= len(finished) < 25
    kept = {chunk: journal.part(chunk).stat().st_mtime_ns for chunk in finished}

    seen = []
    resumed = CleanJob((source,), out, shuffle=5, workers=1)

    def tell(stage, done, total):
        if stage == "writing" and not seen:
            seen.append({chunk: journal.part(chunk).stat().st_mtime_ns for chunk in finished})

    run_clean(resumed, tell)
    assert seen == [kept]
    run_clean(CleanJob((source,), tmp_path / "whole", shuffle=5, workers=1))
    assert contents(out) == contents(tmp_path / "whole")


def _children(parent):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text()
            except OSError:
                continue
            if f"PPid:\t{parent}\n" in status:
                found.append(int(entry.name))
    return found


def test_a_worker_that_dies_is_told_with_where_it_was(tmp_path, monkeypatch):
    source = raw.write_parquet(tmp_path / "raw.parquet", raw.many(60))
    monkeypatch.setattr("replay.clean_workers._start_worker", os.abort)
    with pytest.raises(TaskDataError, match=r"a worker process died.*raw.parquet, rows \d+ to"):
        run_clean(CleanJob((source,), tmp_path / "out", workers=2))
    monkeypatch.undo()
    assert run_clean(CleanJob((source,), tmp_path / "out", workers=1)).stats.rows == 60
