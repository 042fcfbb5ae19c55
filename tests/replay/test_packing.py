"""Documents on disk and their packing: deterministic, resumable, nothing lost unseen."""

import errno
import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from drv_env import SettingError, TaskDataError
from drv_env.errors import DiskError
from replay import token_writer
from replay.chat_templates import QWEN3_THINKING
from replay.documents import Counts, RowSettings, document_of
from replay.packing import PackedRow, PackedRows, best_fit, draw
from replay.recorded import from_messages, recording_id
from replay.sft_rows import transcribe
from replay.template import ChatTemplate
from replay.token_store import TokenStore
from replay.token_writer import write_documents
from tests.replay import recordings as made


def some(count, weight=None):
    provenance = {} if weight is None else {"weight": weight}
    return [
        from_messages(
            made.chat(
                *[
                    made.call("search", query=[f"q{number}"]),
                    made.search_result(f"q{number}", "https://e.org"),
                ]
                * (1 + number % 3),
                made.answer(),
            ),
            provenance=provenance,
        )
        for number in range(count)
    ]


@pytest.fixture(scope="session")
def folder(bpe, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    bpe.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def template(folder):
    return partial(ChatTemplate.from_folder, folder, chat_template=QWEN3_THINKING)


def content(path):
    return {item.name: item.read_bytes() for item in path.iterdir()}


SMALL = RowSettings(shard_chars=700, max_tokens=2_000)


def test_documents_are_the_transcripts(tmp_path, template):
    trajectories = some(7)
    counts = write_documents(trajectories, tmp_path, template, SMALL)
    store = TokenStore(tmp_path)
    assert len(store) == counts.documents == 7
    assert store.index["shards"] > 1
    made_here = template()
    assert store.sources == [recording_id(trajectory) for trajectory in trajectories]
    for trajectory, document in zip(trajectories, store, strict=True):
        transcript = transcribe(trajectory, made_here)
        np.testing.assert_array_equal(document.ids, transcript.ids)
        np.testing.assert_array_equal(document.mask, transcript.mask())
        assert isinstance(document.ids.base, np.memmap)
    assert counts.tokens == store.lengths.sum()


def test_a_shard_ends_with_the_trajectory_that_fills_it():
    (one,) = some(1)
    size = sum(len(turn.text) + len(turn.observation or "") for turn in one.turns)

    def sizes(most):
        return [len(shard) for shard in token_writer._shards([one] * 7, most)]

    assert sizes(2 * size) == sizes(size + 1) == [2, 2, 2, 1]
    assert sizes(2 * size + 1) == [3, 3, 1]
    assert sizes(1) == [1] * 7
    assert sizes(7 * size + 1) == [7]


def test_any_number_of_processes_writes_the_same(tmp_path, template):
    write_documents(some(7), tmp_path / "one", template, SMALL)
    write_documents(some(7), tmp_path / "two", template, SMALL, workers=2)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_run_that_was_cut_short_makes_only_what_is_missing(tmp_path, template, monkeypatch):
    write_documents(some(7), tmp_path / "whole", template, SMALL)
    made_shards = []
    make = token_writer._make

    def counting(job, *rest):
        if len(made_shards) == 2 and stop:
            raise KeyboardInterrupt
        made_shards.append(job.number)
        return make(job, *rest)

    monkeypatch.setattr(token_writer, "_make", counting)
    stop = True
    with pytest.raises(KeyboardInterrupt):
        write_documents(some(7), tmp_path / "cut", template, SMALL)
    with pytest.raises(SettingError, match="no finished token documents"):
        TokenStore(tmp_path / "cut")
    stop = False
    write_documents(some(7), tmp_path / "cut", template, SMALL)
    assert made_shards == list(range(TokenStore(tmp_path / "cut").index["shards"]))
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


@pytest.mark.parametrize("wrong", [0.5, True, "7", None])
def test_a_shard_whose_counts_are_damaged_is_made_anew(tmp_path, template, wrong):
    counts = write_documents(some(2), tmp_path, template, SMALL)
    before = content(tmp_path)
    shard = tmp_path / "shard-00000.json"
    about = json.loads(shard.read_text())
    about["counts"]["tokens"] = wrong
    shard.write_text(json.dumps(about))
    assert write_documents(some(2), tmp_path, template, SMALL) == counts
    assert content(tmp_path) == before


@pytest.mark.parametrize(("others", "method"), [(0, "fork"), (1, "spawn")])
def test_processes_are_forked_only_where_no_other_thread_runs(
    template, monkeypatch, others, method
):
    """A lock that another thread holds would be held for ever in the fork."""
    monkeypatch.setattr(token_writer.threading, "active_count", lambda: 1 + others)
    monkeypatch.setattr(token_writer, "ProcessPool", lambda *arguments: arguments)
    workers, context, _, (makes, settings) = token_writer._pool(template(), template, SMALL, 3)
    assert (workers, context.get_start_method(), settings) == (3, method, SMALL)
    assert makes().name == template().name


def test_other_texts_or_settings_are_made_anew(tmp_path, template):
    write_documents(some(7), tmp_path, template, SMALL)
    shorter = RowSettings(shard_chars=700, max_tokens=100)
    write_documents(some(3), tmp_path, template, shorter)
    store = TokenStore(tmp_path)
    assert len(store) == 3
    assert store.lengths.max() <= 100
    assert len(list(tmp_path.glob("shard-*.json"))) == store.index["shards"]


def test_right_truncation_cuts_to_the_token_and_counts(bpe):
    transcript = transcribe(some(3)[2], ChatTemplate(bpe, QWEN3_THINKING))
    spans = [span for span in transcript.spans if span.kind == "completion"]
    middle = (spans[1].start + spans[1].stop) // 2
    counts = Counts()
    document = document_of(transcript, RowSettings(max_tokens=middle), counts)
    np.testing.assert_array_equal(document.ids, transcript.ids[:middle])
    assert (counts.cut_documents, counts.cut_tokens) == (1, len(transcript) - middle)
    assert counts.cut_agent_tokens == transcript.mask()[middle:].sum()
    assert counts.cut_turns == len(spans) - 1


def test_a_cut_at_a_turn_keeps_whole_turns(bpe):
    transcript = transcribe(some(3)[2], ChatTemplate(bpe, QWEN3_THINKING))
    spans = [span for span in transcript.spans if span.kind == "completion"]
    counts = Counts()
    settings = RowSettings(max_tokens=spans[1].stop + 5, cut="turn")
    document = document_of(transcript, settings, counts)
    assert len(document) == spans[1].stop
    assert document.mask[-1]
    assert counts.cut_turns == len(spans) - 2


@pytest.mark.parametrize("cut", ["right", "turn"])
def test_what_keeps_no_agent_token_is_dropped_and_counted(bpe, cut):
    transcript = transcribe(some(1)[0], ChatTemplate(bpe, QWEN3_THINKING))
    counts = Counts()
    assert document_of(transcript, RowSettings(max_tokens=5, cut=cut), counts) is None
    assert (counts.dropped, counts.documents, counts.tokens) == (1, 0, 0)


def test_best_fit_loses_nothing_and_never_overflows():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 400, 500)
    rows = best_fit(lengths, 1_000)
    assert sorted(item for row in rows for item in row) == list(range(500))
    assert all(lengths[row].sum() <= 1_000 for row in rows)
    assert lengths.sum() / (len(rows) * 1_000) > 0.97
    assert best_fit([], 5) == []
    with pytest.raises(SettingError, match="below the longest document's 7"):
        best_fit([7], 6)


def test_positions_and_segments_begin_anew_in_the_padding_too():
    starts = np.array([0, 3, 5])
    row = PackedRow(np.zeros(8, np.int32), np.zeros(8, bool), starts, (4, 2))
    assert row.positions().tolist() == [0, 1, 2, 0, 1, 0, 1, 2]
    assert row.segments().tolist() == [1, 1, 1, 2, 2, 0, 0, 0]


def test_packed_rows_know_their_documents(tmp_path, template):
    write_documents(some(7), tmp_path, template, SMALL)
    store = TokenStore(tmp_path)
    rows = PackedRows.of(store)
    assert sorted(d for row in rows for d in row.documents) == list(range(7))
    assert 0 < rows.fill <= 1
    for row in rows:
        for place, number in enumerate(row.documents):
            start, stop = row.starts[place], row.starts[place + 1]
            np.testing.assert_array_equal(row.ids[start:stop], store[number].ids)
            np.testing.assert_array_equal(row.mask[start:stop], store[number].mask)
            assert (row.segments()[start:stop] == place + 1).all()
            np.testing.assert_array_equal(row.positions()[start:stop], range(stop - start))
        assert not row.mask[row.starts[-1] :].any()
        assert not row.segments()[row.starts[-1] :].any()
    rows.save(tmp_path / "packing.json")
    again = PackedRows.load(store, tmp_path / "packing.json")
    assert (again.plan, again.row_length) == (rows.plan, rows.row_length)
    for _ in range(2):  # into folders that aren't there yet, and over arrays of before
        rows.write_arrays(tmp_path / "new" / "arrays")
    assert json.loads((tmp_path / "new" / "arrays" / "rows.json").read_text())["starts"] == [
        row.starts.tolist() for row in rows
    ]
    rows.write_arrays(tmp_path / "arrays")
    arrays = np.load(tmp_path / "arrays" / "ids.npy", mmap_mode="r")
    np.testing.assert_array_equal(arrays, [row.ids for row in rows])


def test_arrays_whose_room_is_not_there_are_told_and_leave_nothing(tmp_path, template, monkeypatch):
    write_documents(some(1), tmp_path / "store", template, SMALL)
    rows = PackedRows.of(TokenStore(tmp_path / "store"))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DiskError, match=r"ids\.npy"):
        rows.write_arrays(tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_epoch_is_the_same_every_time_and_unlike_the_next(tmp_path, template):
    write_documents(some(7), tmp_path, template, SMALL)
    store = TokenStore(tmp_path)
    plans = [PackedRows.of(store, seed=1, epoch=epoch).plan for epoch in (0, 0, 1)]
    assert plans[0] == plans[1] != plans[2]


def test_every_epoch_has_an_order_of_its_own(tmp_path, template):
    assert draw(np.ones(20), 3, 0).tolist() != draw(np.ones(20), 3, 1).tolist()
    write_documents(some(9), tmp_path, template, SMALL)
    store = TokenStore(tmp_path)
    longest = int(store.lengths.max())
    plans = [PackedRows.of(store, longest, epoch=epoch).plan for epoch in range(2)]
    assert sorted(item for row in plans[0] for item in row) == list(range(9))
    # the rows' order, and not only which of several equal documents stands where
    lengths = [[store.lengths[list(row)].sum() for row in plan] for plan in plans]
    assert sorted(lengths[0]) == sorted(lengths[1])
    assert lengths[0] != lengths[1]


def test_weights_drive_sampling():
    counts = np.zeros(4)
    for epoch in range(400):
        counts += np.bincount(draw([1.0, 0.0, 5.0, 0.25], 3, epoch), minlength=4)
    assert counts[:3].tolist() == [400, 0, 2_000]
    assert 70 < counts[3] < 130


def test_weights_come_from_the_trajectories(tmp_path, template):
    write_documents([*some(1, weight=2), *some(2)[1:]], tmp_path, template, SMALL)
    store = TokenStore(tmp_path)
    assert store.weights.tolist() == [2.0, 1.0]
    assert sorted(d for row in PackedRows.of(store).plan for d in row) == [0, 0, 1]
    with pytest.raises(TaskDataError, match="a weight must be"):
        write_documents(some(1, weight=-1), tmp_path, template, SMALL)


def test_nothing_to_tokenise_is_said(tmp_path, template):
    with pytest.raises(TaskDataError, match="no trajectory"):
        write_documents([], tmp_path, template)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("cut", ["right", "turn"])
def test_when_no_trajectory_keeps_a_token_nothing_is_written(tmp_path, template, cut, workers):
    tiny = RowSettings(shard_chars=700, max_tokens=5, cut=cut)
    write_documents(some(3), tmp_path / "full", template, SMALL)
    (tmp_path / "own").mkdir()
    before = content(tmp_path / "full")
    for out in (tmp_path / "new" / "rows", tmp_path / "own", tmp_path / "full"):
        with pytest.raises(TaskDataError) as error:
            write_documents(some(3), out, template, tiny, workers=workers, called="--max-tokens")
        assert str(error.value) == (
            "none of the 3 trajectories keeps a token to learn within --max-tokens=5; raise it"
        )
    assert sorted(item.name for item in tmp_path.iterdir()) == ["full", "own"]
    assert content(tmp_path / "own") == {}
    assert content(tmp_path / "full") == before


@pytest.mark.parametrize("workers", [1, 2])
def test_shards_without_a_document_before_the_first_are_made_and_counted(
    tmp_path, template, workers
):
    long = from_messages(
        [{"role": "system", "content": "rule " * 500}, *made.chat(made.answer())[1:]]
    )
    settings = RowSettings(shard_chars=1, max_tokens=600)
    kept = some(1)[0]
    counts = write_documents(
        [long, long, kept, long], tmp_path, template, settings, workers=workers
    )
    alone = document_of(transcribe(kept, template()), settings)
    assert (counts.dropped, counts.documents, counts.tokens) == (3, 1, len(alone))
    size = len(transcribe(long, template()))
    assert (counts.cut_documents, counts.cut_tokens) == (3, 3 * (size - 600))
    store = TokenStore(tmp_path)
    assert store.index["shards"] == 4
    assert store.counts == counts
    np.testing.assert_array_equal(store[0].ids, alone.ids)
    first = content(tmp_path)
    again = write_documents([long, long, kept, long], tmp_path, template, settings)
    assert again == counts
    assert content(tmp_path) == first


def test_trajectories_without_a_turn_have_no_token_to_learn(tmp_path, template):
    silent = replace(some(1)[0], turns=(), rewards=())
    with pytest.raises(TaskDataError, match="none of the 2 trajectories has a token to learn"):
        write_documents([silent, silent], tmp_path / "rows", template)
    assert not (tmp_path / "rows").exists()


def test_a_store_without_a_document_is_refused(tmp_path, template):
    write_documents(some(1), tmp_path, template)
    index = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps({**index, "shards": 0}))
    with pytest.raises(SettingError, match="holds no document: no trajectory kept a token"):
        TokenStore(tmp_path)


def test_a_shard_that_is_missing_is_told_as_such(tmp_path, template):
    write_documents(some(1), tmp_path, template)
    (tmp_path / "shard-00000.json").unlink()
    with pytest.raises(SettingError, match=r"shard 0 of .* is missing; make them again"):
        TokenStore(tmp_path)


@pytest.mark.parametrize("kind", ["ids", "mask"])
def test_arrays_of_another_size_or_kind_are_refused(tmp_path, template, kind):
    write_documents(some(2), tmp_path, template)
    file = tmp_path / f"shard-00000.{kind}.npy"
    right = np.load(file)
    for wrong in (right[:-1], np.append(right, right[:1]), right.astype(np.int64)):
        np.save(file, wrong)
        with pytest.raises(SettingError, match=f"its arrays are not {len(right):,} ids and marks"):
            TokenStore(tmp_path)
    np.save(file, right)
    assert len(TokenStore(tmp_path)) == 2


def test_totals_are_told_after_every_shard(tmp_path, template):
    told = []
    write_documents(
        some(3), tmp_path, template, SMALL, on_shard=lambda sums: told.append(sums.documents)
    )
    sizes = [len(json.loads(file.read_text())["lengths"]) for file in shards_of(tmp_path)]
    assert told == np.cumsum(sizes).tolist()
    assert told[-1] == 3


def shards_of(folder):
    return sorted(folder.glob("shard-*.json"))


def test_weights_of_a_store_are_from_zero_to_a_million(tmp_path, template):
    write_documents(some(2), tmp_path, template)
    shard = tmp_path / "shard-00000.json"
    about = json.loads(shard.read_text())
    shard.write_text(json.dumps({**about, "weights": [0.0, 999_999.0]}))
    assert TokenStore(tmp_path).weights.tolist() == [0.0, 999_999.0]
    for wrong in (-0.5, 1e6, float("nan")):
        shard.write_text(json.dumps({**about, "weights": [1.0, wrong]}))
        with pytest.raises(SettingError, match=r"shard-00000\.json.*weight can't be"):
            TokenStore(tmp_path)


def test_settings_that_cant_work_are_named():
    with pytest.raises(SettingError, match="max_tokens must be at least 2, got 1"):
        RowSettings(max_tokens=1)
    with pytest.raises(SettingError, match="cut may be right or turn, got 'left'"):
        RowSettings(cut="left")
