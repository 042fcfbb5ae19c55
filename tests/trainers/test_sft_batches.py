"""Which rows a step learns from, and how a batch is cut."""

import itertools
from collections import Counter

import numpy as np
import pytest

from drv_env import SettingError
from replay.packing import PackedRow
from tests.trainers.test_packed_attention import ragged
from trainers.rows import Row, balanced
from trainers.sft_batches import Batches, micro_batches, parts

ROWS = ragged([5, 9, 3, 7, 2, 8, 4])


def drawn(batches):
    return [[row.ids.tolist() for row in batches[step]] for step in range(1, len(batches) + 1)]


def test_every_row_comes_once_an_epoch():
    batches = Batches(ROWS, epochs=2, batch_size=3)
    assert [len(batches[step]) for step in range(1, len(batches) + 1)] == [3, 3, 1] * 2
    counts = Counter(str(ids) for batch in drawn(batches) for ids in batch)
    assert set(counts.values()) == {2}
    assert len(counts) == len(ROWS)
    assert drawn(batches)[:3] != drawn(batches)[3:]


def test_a_seed_fixes_the_order():
    assert drawn(Batches(ROWS, seed=4)) == drawn(Batches(ROWS, seed=4))
    assert drawn(Batches(ROWS, seed=4)) != drawn(Batches(ROWS, seed=5))


def test_rows_come_as_often_as_they_weigh():
    weights = [0, 1, 2, 0.5, 1, 1, 1]
    batches = Batches(ROWS, epochs=200, batch_size=100, weights=weights)
    counts = Counter(len(row) for step in range(1, 201) for row in batches[step])
    found = [counts[len(row)] / 200 for row in ROWS]
    assert found[:3] == [0, 1, 2]
    assert found[3] == pytest.approx(0.5, abs=0.15)


def test_a_digest_tells_sizes_and_weights_apart():
    digests = [
        Batches(ROWS).digest,
        Batches(ROWS[::-1]).digest,
        Batches(ROWS[:-1]).digest,
        Batches(ROWS, weights=[1] * 7).digest,
        Batches(ROWS, weights=[1] * 6 + [2]).digest,
    ]
    assert len(set(digests)) == 5
    assert Batches(ROWS, seed=1, epochs=2, weights=[1.0] * 7).digest == digests[3]
    assert digests[2].startswith("6 rows, ")


def test_a_batch_of_tokens_holds_no_more_than_them():
    batches = Batches(ROWS, batch_tokens=10)
    sizes = [[len(row) for row in batches[step]] for step in range(1, len(batches) + 1)]
    assert all(sum(batch) <= 10 for batch in sizes)
    assert sorted(size for batch in sizes for size in batch) == [2, 3, 4, 5, 7, 8, 9]
    assert all(sum(one) + two[0] > 10 for one, two in itertools.pairwise(sizes))
    assert len(Batches(ROWS, batch_tokens=1)) == len(ROWS)


def test_a_packed_row_is_its_documents():
    ids, mask = np.arange(8, dtype=np.int32), np.array([0, 1, 1, 0, 1, 0, 0, 0], bool)
    row = PackedRow(ids, mask, np.array([0, 3, 5]), (4, 2))
    assert [part.ids.tolist() for part in parts(row)] == [[0, 1, 2], [3, 4]]
    batches = Batches([row, row], batch_size=2)
    assert [len(part) for part in batches[1]] == [3, 2, 3, 2]
    assert (batches.lengths.tolist(), batches.learnt.tolist()) == ([5, 5], [3, 3])


def test_rows_that_teach_nothing_are_refused():
    nothing = Row(np.arange(4, dtype=np.int32), np.zeros(4, bool))
    first = Row(np.arange(4, dtype=np.int32), np.array([1, 1, 0, 0], bool))
    with pytest.raises(SettingError, match="row 7 has no token"):
        Batches([*ROWS, nothing])
    with pytest.raises(SettingError, match="row 7 learns its first token"):
        Batches([*ROWS, first])
    with pytest.raises(SettingError, match="no row was drawn"):
        Batches(ROWS, weights=np.zeros(7))
    with pytest.raises(SettingError, match="7 rows and 3 weights"):
        Batches(ROWS, weights=np.ones(3))


@pytest.mark.parametrize("packed", [False, True])
def test_micro_batches_hold_every_row_once_and_no_more_tokens_than_allowed(packed):
    found = micro_batches(ROWS, 16, packed)
    assert sorted(len(row) for part in found for row in part) == [2, 3, 4, 5, 7, 8, 9]
    for part in found:
        lengths = [len(row) for row in part]
        assert (sum(lengths) if packed else max(lengths) * len(lengths)) <= 16


def test_parts_are_few_and_of_like_size():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 400, 200).tolist()
    found = balanced(lengths, 2_000)
    sums = [sum(lengths[index] for index in part) for part in found]
    assert sorted(index for part in found for index in part) == list(range(200))
    assert max(sums) <= 2_000
    assert len(found) <= sum(lengths) / 2_000 + 2
    assert max(sums) - min(sums) < 50
    assert balanced([30, 2, 3], 10) == [[0], [1, 2]]
    assert balanced([30], 10) == [[0]]
