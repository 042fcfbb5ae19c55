"""The cassette's file: what goes in comes out, for many processes at once, or says why not."""

import asyncio
import json
import math
import os
import pickle
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drv_env.cassette import CassetteError, CassetteStore, Entry, Recorded, canonical
from drv_env.cassette.file import VERSION, open_file
from drv_env.errors import SettingError
from drv_env.testing import ManualClock

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
ANY_KEY = st.dictionaries(ANY_TEXT, ANY_JSON, max_size=4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassette.sqlite"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared") / "any.sqlite"


def texts(path: Path) -> list[str]:
    with CassetteStore(path, read_only=True) as store:
        return [entry.value.text for entry in store.entries()]


def test_a_recording_comes_back_whole(path):
    value = Recorded("text", "empty", {"pages": [1, None]}, 1.5, 0.25, 99.0, {"by": "me"})
    with CassetteStore(path) as store:
        assert store.get("search", {"query": ["x"]}) is None
        assert store.put("search", {"query": ["x"]}, value) == value
    with CassetteStore(path) as store:
        assert store.get("search", {"query": ["x"]}) == value
        assert store.get("visit", {"query": ["x"]}) is None
        assert store.get("search", {"query": ["x"]}, "world-1") is None


def test_the_stores_clock_dates_what_has_no_date(path):
    with CassetteStore(path, clock=ManualClock(50.0)) as store:
        assert store.put("a", {}, Recorded("t")).recorded_at == 50.0
        assert store.get("a", {}, newer_than=50.0) is not None
        assert store.get("a", {}, newer_than=50.1) is None


def test_the_first_recording_stands_or_the_last_as_set(path):
    with CassetteStore(path) as store:
        store.put("a", {}, Recorded("first"))
        assert store.put("a", {}, Recorded("second")).text == "first"
        assert store.put("a", {}, Recorded("third"), replace_before=math.inf).text == "third"
    with CassetteStore(path, keep="last") as store:
        assert store.put("a", {}, Recorded("fourth")).text == "fourth"
    assert texts(path) == ["fourth"]


def test_a_failure_is_refused(path):
    with CassetteStore(path) as store, pytest.raises(SettingError, match="connection reset"):
        store.put("search", {}, Recorded("connection reset", "failed"))
    assert not path.exists()


def test_data_that_json_does_not_know_is_kept_as_its_repr(path):
    with CassetteStore(path) as store:
        store.put("a", {}, Recorded("t", data={1: (Path("x"), {"y"})}))
        assert store.get("a", {}).data == {"1": [repr(Path("x")), "{'y'}"]}


@given(ANY_TEXT, ANY_TEXT, ANY_KEY, ANY_TEXT, ANY_JSON)
@settings(deadline=None, max_examples=100)
def test_any_text_and_key_come_back_to_the_character(shared, kind, namespace, key, text, data):
    store = CassetteStore(shared, keep="last")
    store.put(kind, key, Recorded(text, data=data), namespace)
    found = store.get(kind, dict(reversed(key.items())), namespace)
    assert (found.text, found.data) == (text, data)
    near = store.nearest(kind, key, namespace)
    assert near.similarity == 1.0
    store.close()


@given(ANY_KEY, ANY_KEY)
@settings(deadline=None)
def test_keys_are_the_same_exactly_when_their_json_is(one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    if not _has_surrogates(one, other):  # escaped pairs of them read as one character
        assert (canonical(one) == canonical(other)) == same
    assert canonical(json.loads(canonical(one))) == canonical(one)


def _has_surrogates(*keys: object) -> bool:
    try:
        json.dumps(keys, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def test_unicode_is_not_normalised_and_lists_keep_their_order():
    assert canonical({"q": "\u00e9"}) != canonical({"q": "e\u0301"})
    assert canonical({"q": ["a", "b"]}) != canonical({"q": ["b", "a"]})
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})
    assert len({canonical({"q": value}) for value in (1, 1.0, True, "1")}) == 4
    with pytest.raises(TypeError):
        canonical({"q": {1, 2}})


WRITER = """
import sys
from drv_env.cassette import CassetteStore, Recorded
number = int(sys.argv[2])
store = CassetteStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for index in range(500):
    owner = "all" if index % 5 == 0 else number
    store.put("search", {"query": [f"{owner} {index}"]}, Recorded(f"{owner} {index} " + "x" * 500))
store.close()
"""


def test_four_processes_record_at_once_and_nothing_is_lost(path):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    owners = [(number, index) for number in range(4) for index in range(500) if index % 5]
    wanted = {f"{owner} {index}" for owner, index in owners}
    wanted |= {f"all {index}" for index in range(0, 500, 5)}
    found = [text.rpartition(" ")[0] for text in texts(path)]
    assert len(found) == len(wanted) == 1700
    assert set(found) == wanted
    with CassetteStore(path) as store:
        assert store.nearest("search", {"query": ["3 499 x"]}).key == {"query": ["3 499"]}


def test_a_locked_file_is_waited_for_and_then_named(path):
    with CassetteStore(path, busy_seconds=0.05) as store:
        store.put("a", {}, Recorded("t"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert store.get("a", {}).text == "t"
        with pytest.raises(CassetteError, match=r"cassette\.sqlite is held by another process"):
            store.put("b", {}, Recorded("t"))
        other.execute("COMMIT")
        store.put("b", {}, Recorded("t"))
        other.close()


def test_a_forked_child_has_a_connection_of_its_own(path):
    async def use(store: CassetteStore, key: int) -> None:
        await store.aput("a", {"key": key}, Recorded(f"by {key}"))

    with CassetteStore(path) as store:
        asyncio.run(use(store, 1))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.run(use(store, 2))
                code = 0 if store.get("a", {"key": 1}).text == "by 1" else 2
            finally:
                os._exit(code)
        asyncio.run(use(store, 3))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store.get("a", {"key": 2}).text == "by 2"


def test_it_pickles_as_its_path_and_settings(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with CassetteStore("cassette.sqlite", keep="last", busy_seconds=3) as store:
        store.put("a", {}, Recorded("t"))
        monkeypatch.chdir("/")
        copy = pickle.loads(pickle.dumps(store))
        assert (copy.path, copy.keep, copy.busy_seconds) == (path, "last", 3)
        assert copy.get("a", {}).text == "t"
        copy.close()


def test_a_closed_store_leaves_one_file_and_opens_again(path):
    async def play() -> None:
        await store.aput("a", {}, Recorded("t"))
        await store.aclose()
        await store.aclose()

    store = CassetteStore(path)
    asyncio.run(play())
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    assert store.get("a", {}).text == "t"
    store.close()
    store.close()


def damaged(path: Path, how: str) -> None:
    match how:
        case "text":
            path.write_text("This is no SQLite file. " * 100)
        case "short":
            path.write_bytes(b"SQLite format 3\x00")
        case "folder":
            path.mkdir()
        case "another program's":
            with sqlite3.connect(path) as connection:
                connection.execute("CREATE TABLE mine (x)")
            connection.close()
        case "cut" | "later":
            with CassetteStore(path) as store:
                store.put_many(
                    Entry("a", {"n": n}, Recorded(f"{n} " + "x" * 5_000)) for n in range(100)
                )
            if how == "cut":
                os.truncate(path, path.stat().st_size // 2)
            else:
                connection = sqlite3.connect(path)
                connection.execute(f"PRAGMA user_version = {VERSION + 1}")
                connection.close()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("text", "no SQLite file"),
        ("short", "not a cassette|damaged"),
        ("folder", "is a folder"),
        ("another program's", "another program's SQLite file"),
        ("cut", "damaged or cut short"),
        ("later", f"version {VERSION + 1}.*reads version {VERSION}"),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_an_unusable_file_is_named_and_left_alone(path, how, said, read_only):
    damaged(path, how)
    before = None if how == "folder" else path.read_bytes()
    with CassetteStore(path, read_only=read_only) as store:
        with pytest.raises(CassetteError, match=rf"cassette\.sqlite.*({said})|({said}).*sqlite"):
            store.get("a", {"n": 99})
        with pytest.raises(CassetteError, match=r"cassette\.sqlite"):
            store.put("a", {"n": 100}, Recorded("t"))
    if before is not None:
        assert path.read_bytes() == before


def test_a_missing_file_is_only_made_for_writing(path):
    with CassetteStore(path, read_only=True) as store:
        with pytest.raises(CassetteError, match=r"no cassette at .*cassette\.sqlite"):
            store.check()
        assert not path.exists()
    deep = path.parent / "a" / "b" / "odd?name#1%20.db"
    with CassetteStore(deep) as store:
        store.put("a", {}, Recorded("t"))
    assert texts(deep) == ["t"]
    with CassetteStore(deep, read_only=True) as store, pytest.raises(CassetteError, match="odd"):
        store.put("b", {}, Recorded("t"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cassette_in_a_folder_that_cannot_be_written_is_read(path):
    with CassetteStore(path) as store:
        store.put("a", {}, Recorded("t"))
    path.parent.chmod(0o500)
    try:
        assert texts(path) == ["t"]
    finally:
        path.parent.chmod(0o700)


def test_the_nearest_recording_is_found_among_many(path):
    cities = ["Oslo", "Lima", "Quito", "Turku", "Bergen"]
    with CassetteStore(path) as store:
        assert store.nearest("search", {"query": ["x"]}) is None
        store.put_many(
            Entry("search", {"query": [f"the mayor of {city} in {year}"]}, Recorded("t"), "w")
            for city in cities
            for year in range(1000, 1600)
        )
        store.put("visit", {"url": ["https://oslo"], "goal": "mayor of Oslo 1234"}, Recorded("t"))
        near = store.nearest("search", {"query": ["Mayor of Oslo 1234"]})
        assert near.key == {"query": ["the mayor of Oslo in 1234"]}
        assert near.namespace == "w"
        assert 0.7 < near.similarity < 1.0
        assert store.nearest("search", {"query": ["灯塔"]}).similarity < 0.3
        store.put("search", {"query": ["灯塔的主人"]}, Recorded("t"))
        assert store.nearest("search", {"query": ["灯塔"]}).key == {"query": ["灯塔的主人"]}
        here = store.put("search", {"query": ["the mayor of Lima in 1100"]}, Recorded("t"), "v")
        assert here.text == "t"
        for place in "vw":
            assert store.nearest("search", {"query": ["Lima 1100"]}, place).namespace == place


def test_keys_are_compared_by_their_first_three_hundred_characters(path):
    text = "abcdefghi " * 30
    with CassetteStore(path) as store:
        store.put("a", {"q": text + "x"}, Recorded("t"))
        assert store.nearest("a", {"q": text + "y"}).similarity == 1.0
        assert store.nearest("a", {"q": text[:-1] + "z"}).similarity == pytest.approx(299 / 300)


def test_merging_counts_what_differs_and_keeps_as_set(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    with CassetteStore(two) as store:
        for name, text, at in (("new", "n", 9.0), ("same", "s", 9.0), ("other", "late", 9.0)):
            store.put("a", {"name": name}, Recorded(text, recorded_at=at))
        store.put("a", {"name": "earlier"}, Recorded("early", recorded_at=1.0))
    for keep, dry_run, standing in (
        ("first", True, ["mine", "mine", "s"]),
        ("last", True, ["mine", "mine", "s"]),
        ("first", False, ["mine", "n", "mine", "s"]),
        ("last", False, ["mine", "n", "late", "s"]),
    ):
        one.unlink(missing_ok=True)
        with CassetteStore(one, keep=keep) as store:
            for name, text in (("same", "s"), ("other", "mine"), ("earlier", "mine")):
                store.put("a", {"name": name}, Recorded(text, recorded_at=5.0))
            merged = store.merge(two, dry_run=dry_run)
        replaced = int(keep == "last")
        assert (merged.added, merged.same, merged.conflicts) == (1, 1, 2)
        assert (merged.kept, merged.replaced) == (2 - replaced, replaced)
        assert texts(one) == standing


def test_merging_needs_another_cassette(path, tmp_path):
    with CassetteStore(path) as store:
        store.put("a", {}, Recorded("t"))
        with pytest.raises(SettingError, match="itself"):
            store.merge(path)
        with pytest.raises(CassetteError, match="nowhere"):
            store.merge(tmp_path / "nowhere")
    with CassetteStore(tmp_path / "unmade") as store:
        assert store.merge(path, dry_run=True).added == 1
    assert not (tmp_path / "unmade").exists()


def test_many_batches_are_read_merged_and_counted(path, tmp_path):
    with CassetteStore(path) as store:
        added = store.put_many(
            Entry(kind, {"n": n}, Recorded("x\ud800" if n == 7 else "xy"))
            for kind in ("a", "b\udfff")
            for n in range(1_100)
        )
        assert added.added == 2_200
        assert sum(1 for _ in store.entries()) == 2_200
        first, second = store.stats()
        assert (first.kind, second.kind) == ("a", "b\udfff")
        assert (first.recordings, first.text_bytes) == (1_100, 2 * 1_099 + 4)
    with CassetteStore(tmp_path / "two") as store:
        assert store.merge(path).added == 2_200
        assert store.merge(path).same == 2_200


def test_an_export_is_whole_or_not_there(path, tmp_path, monkeypatch):
    out = tmp_path / "out.jsonl"
    value = Recorded("né\ud800", data=[1], cost=0.5, recorded_at=3.0, provenance={"by": "me"})
    with CassetteStore(path) as store:
        store.put("visit", {"url": ["u"], "goal": "g"}, value, "w")
        store.put("search", {"query": ["né"]}, Recorded("né", recorded_at=4.0))
        assert store.export(out) == 2
        lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
        assert [line["kind"] for line in lines] == ["search", "visit"]
        assert lines[1] == {
            "kind": "visit",
            "namespace": "w",
            "arguments": {"url": ["u"], "goal": "g"},
            "text": "né\ud800",
            "status": "ok",
            "data": [1],
            "latency": 0.0,
            "cost": 0.5,
            "recorded_at": 3.0,
            "provenance": {"by": "me"},
        }
        before = out.read_bytes()
        assert "né".encode() in before
        with pytest.raises(SettingError, match="itself"):
            store.export(path)

        def fail(row: object) -> bytes:
            raise OSError("disk full")

        monkeypatch.setattr("drv_env.cassette.store.to_line", fail)
        with pytest.raises(OSError, match="disk full"):
            store.export(out)
        assert out.read_bytes() == before
        assert not [item for item in tmp_path.iterdir() if item.suffix == ".tmp"]


@pytest.mark.parametrize(
    ("arguments", "named"), [({"keep": "both"}, "keep"), ({"busy_seconds": 0}, "busy_seconds")]
)
def test_settings_that_cannot_work_are_named(path, arguments, named):
    with pytest.raises(SettingError, match=named):
        CassetteStore(path, **arguments)


def test_the_event_loop_goes_on_while_a_store_waits(path):
    async def play() -> str:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(store.aput("b", {}, Recorded("later")))
        await asyncio.sleep(0)
        other.execute("COMMIT")  # reached only because the loop is free
        other.close()
        return (await waiting).text

    with CassetteStore(path) as store:
        store.put("a", {}, Recorded("t"))
        assert asyncio.run(play()) == "later"


def test_a_cassette_made_while_it_is_looked_at_is_not_taken_for_another_file(path, monkeypatch):
    """Another process makes the file between two of the looks at what it is."""
    connect, looked = sqlite3.connect, []

    def traced(*arguments, **settings):
        connection = connect(*arguments, **settings)

        def before(statement):
            if "user_version" in statement and not looked:
                looked.append(statement)
                with suppress(sqlite3.OperationalError):  # it is kept waiting, which is as good
                    open_file(path, False, 0.05).close()

        connection.set_trace_callback(before)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    connection = open_file(path, False, 5.0)
    assert looked
    assert connection.execute("SELECT count(*) FROM calls").fetchone() == (0,)
    connection.close()
