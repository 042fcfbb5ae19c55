"""Turn-aware weights, copies, and the shuffle beyond memory."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from drv_env.errors import SettingError
from replay.cleaned_rows import SCHEMA, as_copies
from replay.resample import Resampling, random_keys, shuffled


def tables(rows, size):
    for start in range(0, rows, size):
        numbers = list(range(start, min(start + size, rows)))
        texts = [f"row {number} " + "x" * 100 for number in numbers]
        yield pa.table({"number": numbers, "text": texts})


def order(found):
    return [number for table in found for number in table["number"].to_pylist()]


def test_the_published_weights():
    weights = [Resampling().weight(turns) for turns in (0, 50, 51, 100, 101, 300)]
    assert weights == [1, 1, 2, 2, 5, 5]


def test_other_weights():
    chosen = Resampling.parse("10:3,20:1,2")
    assert [chosen.weight(turns) for turns in (10, 20, 21)] == [3, 1, 2]
    assert Resampling.parse("4").weight(7) == 4


@pytest.mark.parametrize("text", ["", "50:1", "100:1,50:2,5", "50:0,1", "a:1,2", "50:1,100"])
def test_weights_that_cannot_work_are_refused(text):
    if text == "50:1,100":
        assert Resampling.parse(text).beyond == 100
        return
    with pytest.raises(SettingError):
        Resampling.parse(text)


def test_copies_are_counted():
    rows = [dict.fromkeys(SCHEMA.names) | {"weight": w, "row": w} for w in (1, 3, 2)]
    copied = as_copies(pa.Table.from_pylist(rows, SCHEMA))
    assert copied["row"].to_pylist() == [1, 3, 3, 3, 2, 2]
    assert copied["copy"].to_pylist() == [0, 0, 1, 2, 0, 1]
    assert set(copied["weight"].to_pylist()) == {1}
    assert copied.schema.equals(SCHEMA)


def test_the_shuffle_depends_on_rows_and_seed_alone(tmp_path):
    expected = order(shuffled(tables(3000, 3000), 7))
    assert sorted(expected) == list(range(3000))
    assert expected != sorted(expected)
    for size, memory in ((1000, 2**26), (97, 20_000), (3000, 50_000), (10, 1_000)):
        assert order(shuffled(tables(3000, size), 7, tmp_path, memory)) == expected
    assert order(shuffled(tables(3000, 3000), 8)) != expected
    assert not list(tmp_path.iterdir())


def test_the_shuffle_holds_few_rows_at_a_time(tmp_path):
    sizes = [table.nbytes for table in shuffled(tables(20_000, 100), 0, tmp_path, 100_000)]
    assert max(sizes) <= 120_000


def test_nothing_shuffles_to_nothing():
    assert order(shuffled([], 0)) == []


def test_places_are_uniform():
    counts: Counter[int] = Counter()
    for seed in range(600):
        first = np.argsort(random_keys(seed, 0, 6))[0]
        counts[int(first)] += 1
    assert all(60 < count < 145 for count in counts.values())
    assert len(counts) == 6
    keys = random_keys(1, 0, 100_000)
    assert len(set(keys.tolist())) == 100_000
    assert random_keys(1, 500, 10).tolist() == keys[500:510].tolist()
