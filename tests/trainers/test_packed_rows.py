"""The trainers' rows from token documents on disk."""

from functools import partial

import numpy as np
import pytest

from replay.chat_templates import CHATML
from replay.packing import PackedRows, draw
from replay.recorded import from_messages
from replay.template import ChatTemplate
from replay.token_store import TokenStore
from replay.token_writer import write_documents
from tests.replay import recordings as made
from tests.replay.conftest import byte_level_bpe
from trainers.packed_rows import document_rows, packed_rows, store_rows
from trainers.rows import pad_rows
from trainers.sft_batches import Batches


@pytest.fixture
def store(tmp_path):
    byte_level_bpe().save(str(tmp_path / "tokenizer.json"))
    trajectories = [
        from_messages(made.spaced(), provenance={"weight": 2}),
        from_messages(made.tight()),
    ]
    template = partial(ChatTemplate.from_folder, tmp_path, chat_template=CHATML)
    write_documents(trajectories, tmp_path / "tokens", template)
    return TokenStore(tmp_path / "tokens")


def test_documents_are_rows_drawn_by_weight(store):
    rows = document_rows(store, seed=1)
    assert sorted(map(len, rows)) == sorted([*[int(store.lengths[0])] * 2, int(store.lengths[1])])
    ids, mask = pad_rows(rows)
    assert ids.shape == mask.shape == (3, int(store.lengths.max()))
    assert int(mask.sum()) == sum(int(row.mask.sum()) for row in rows)
    assert not any(row.mask[0] for row in rows)
    drawn = draw(np.array([2.0, 1.0]), 0, 0)  # the first epoch of the seed 0, unless told
    assert [len(row) for row in document_rows(store)] == store.lengths[drawn].tolist()
    for epoch in range(1, 4):
        drawn = draw(np.array([2.0, 1.0]), 0, epoch)
        found = [len(row) for row in document_rows(store, epoch=epoch)]
        assert found == store.lengths[drawn].tolist()


def test_all_documents_come_with_their_weights(store):
    rows, weights = store_rows(store)
    assert [len(row) for row in rows] == store.lengths.tolist()
    assert weights.tolist() == [2, 1]
    batches = Batches(rows, weights=weights, epochs=3, batch_size=3)
    assert [len(batches[step]) for step in (1, 2, 3)] == [3, 3, 3]


def test_packed_rows_and_their_documents_are_learnt_alike(store):
    packed = packed_rows(store, 4_000)
    batches = Batches(packed, batch_size=len(packed))
    found = sorted(row.ids.tobytes() for row in batches[1])
    assert found == sorted(row.ids.tobytes() for row in document_rows(store))
    assert batches.learnt.sum() == sum(int(row.mask.sum()) for row in document_rows(store))


def test_packed_rows_are_of_one_length(store):
    longest = int(store.lengths.max())
    plan = packed_rows(store, longest).plan
    assert plan == PackedRows.of(store, longest, seed=0, epoch=0).plan
    assert plan != packed_rows(store, longest, seed=1).plan
    assert plan != packed_rows(store, longest, epoch=1).plan
    rows = packed_rows(store, 4_000)
    assert {len(row.ids) for row in rows} == {4_000}
    assert np.isclose(rows.fill, rows.tokens / (4_000 * len(rows)))
