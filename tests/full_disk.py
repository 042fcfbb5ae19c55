"""Commands on a disk that is full, at many levels; what is wrong is printed.

    python tests/full_disk.py                 every command, every level, both ways
    python tests/full_disk.py --way limit --levels 3 --commands rows convert

Two ways: a small disk of its own (tmpfs in a namespace of mounts, which needs unshare to be
allowed) whose room a ballast takes, and a limit on a file's size (RLIMIT_FSIZE).  Each command
is run with little room, must end with one line that names a path there, leave nothing half
written and what stood there whole; and run again with room, must give what it gives elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
DISK_BYTES = 32_000_000
LEVELS = [0, 1, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 768]
"""KiB of room."""


PLAYED = {"rollout", "eval", "sft", "igpo"}
"""What a model plays, or learns."""


def prepare(given: Path, names: Iterable[str]) -> None:
    """Inputs of every kind that the commands of these names take."""
    from drv_env.cassette import CassetteStore, Recorded
    from drv_env.worlds import WorldRecipe, questions
    from tests.replay import raw_rows as raw
    from tests.replay import recordings as made
    from tests.replay.conftest import byte_level_bpe

    raw.write_parquet(given / "raw.parquet", raw.many(16))
    chats = [{"messages": made.spaced()}, {"messages": made.tight()}] * 8
    (given / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)))
    byte_level_bpe().save(str(given / "tokenizer.json"))
    with CassetteStore(given / "web.cassette") as store:
        for number in range(20):
            store.put("search", {"q": str(number)}, Recorded(f"{number} " * 500))
    tasks = questions(WorldRecipe(3).build(), hops=(1,))[:4]
    rows = [{"question": t.question, "answer": t.answers[0], "world": t.world} for t in tasks]
    (given / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if PLAYED & set(names):
        from tests.small_agent import save_small_agent

        save_small_agent(given / "agent")


def commands(given: Path, out: Path) -> dict[str, list[str]]:
    """The commands, all of which write ``out``."""
    chats, agent = str(given / "chats.jsonl"), str(given / "agent")
    model = ["--model.folder", agent, "--model.device", "cpu", "--out", str(out)]
    play = [str(given / "tasks.jsonl"), "--model", agent, "--out", str(out)]
    rl = ["--rl.steps", "2", "--rl.tasks-per-step", "2", "--rl.group-size", "2"]
    clean = ["data", "clean", str(given / "raw.parquet"), "--out", str(out), "--workers", "1"]
    rows = ["data", "rows", chats, "--out", str(out), "--workers", "1"]
    # what the agent's vocabulary doesn't have are many tokens of few bytes each
    cut = ["--data.trajectories", chats, "--data.max-tokens", "300", "--sft.max-steps", "2"]
    return {
        "clean": clean,
        "shuffle": [*clean, "--shuffle", "1", "--copies"],
        "rows": [*rows, "--tokenizer", str(given), "--chat-template", "qwen3-thinking"],
        "web": ["data", "web", chats, "--out", str(out)],
        "convert": ["data", "convert", chats, f"{out}.jsonl"],
        "convert, parquet": ["data", "convert", chats, f"{out}.parquet", "--force"],
        "export": ["cassette", "export", str(given / "web.cassette"), f"{out}.jsonl", "--force"],
        "merge": ["cassette", "merge", f"{out}.cassette", str(given / "web.cassette")],
        "rollout": ["rollout", *play, "--world", "3", "--group-size", "2"],
        "eval": ["eval", *play, "--world", "3"],
        "sft": ["train", "sft", *model, *cut],
        "igpo": ["train", "igpo", *model, *rl, "--checkpoints.every", "1"],
    }


QUICK = ("clean", "rows", "web", "convert, parquet", "export", "merge")


def run(arguments: list[str]) -> tuple[int, str]:
    """A command in this process: what it returns, and its standard error."""
    from trainers.cli import main

    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(arguments)
        except BaseException:  # noqa: BLE001 (whatever it is, it is told)
            said.write(traceback.format_exc())
            code = -1
    return code, said.getvalue()


@contextlib.contextmanager
def room(way: str, disk: Path, free: int) -> Iterator[None]:
    """Little room: ``free`` bytes on the disk, or for a file."""
    if way == "limit":
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (free, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        return
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        found = os.statvfs(disk)
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - free)
    try:
        yield
    finally:
        ballast.unlink()


def content(disk: Path) -> dict[str, Any]:
    """What a command made, but for times and the bytes of databases."""
    import pyarrow.parquet as pq

    found: dict[str, Any] = {}
    for path in sorted(disk.rglob("*")):
        name = str(path.relative_to(disk))
        if not path.is_file() or name in ("old.parquet", "old.jsonl"):
            continue
        if "tensorboard" in name:
            found["tensorboard"] = True
        elif "trajectories/" in name or "broken/" in name:
            rows = found.get("episodes", 0)
            found["episodes"] = rows + pq.read_metadata(path).num_rows
        elif path.name in ("metrics.jsonl", "config.json", "web.json", "eval.json", "state.json"):
            found[name] = len(path.read_text().splitlines()) if path.suffix == ".jsonl" else True
        elif path.name == "stats.json":
            found[name] = {**json.loads(path.read_text()), "job": None}
        elif "cassette" in name or path.suffix in (".sqlite", ".pt"):
            found[name.removesuffix("-wal").removesuffix("-shm")] = True
        else:
            found[name] = path.read_bytes()
    return found


def wrong(disk: Path, code: int, said: str, old: dict[Path, bytes]) -> list[str]:
    """What is wrong after a command that had too little room."""
    import pyarrow.parquet as pq

    found = []
    last = said.strip().splitlines()[-1:] or [""]
    if code not in (0, 1) or "Traceback" in said:
        found.append(f"it ended with {code}: {said[-1500:]}")
    elif code == 1 and not (last[0].startswith("drv: /") or "cassette /" in last[0]):
        found.append(f"the last line names no path: {last[0]}")
    if said.count("drv: ") > 1:
        found.append(f"more than one line: {said}")
    for path in disk.rglob("*"):
        if path.name.endswith(".tmp"):
            found.append(f"left {path}")
        if path.is_file() and ".work/done" not in str(path) and ".shuffle-" not in str(path):
            try:
                if path.suffix == ".parquet":
                    pq.read_table(path)
                elif path.suffix == ".json":
                    json.loads(path.read_text())
                elif path.suffix == ".jsonl":
                    for line in path.read_text().splitlines():
                        json.loads(line or "0")
            except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
                found.append(f"{path} is half written: {error}")
    found += [f"{path} changed" for path, data in old.items() if path.read_bytes() != data]
    return found


def say(each: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(each) + "\n")


def clear(disk: Path) -> None:
    for path in disk.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def try_command(
    way: str, disk: Path, name: str, given: Path, levels: list[int], tell: Callable[[Any], None]
) -> None:
    """A command at every level until there is room enough."""
    clear(disk)
    arguments = commands(given, disk / "out")[name]
    code, said = run(arguments)
    assert code == 0, said
    whole = content(disk)
    for level in levels:
        clear(disk)
        old = {}
        for ending in ("jsonl", "parquet"):
            if "--force" in arguments and f"{disk}/out.{ending}" in arguments:
                (disk / f"out.{ending}").write_text('{"old": 1}\n')
                old[disk / f"out.{ending}"] = b'{"old": 1}\n'
        with room(way, disk, 1024 * level):
            code, said = run(arguments)
        faults = [] if code == 0 else wrong(disk, code, said, old)
        if ".parquet" in str(old):
            faults = [fault for fault in faults if "is half written" not in fault]
        full = code != 0
        if full:
            code, said = run(arguments)
        if code != 0:
            faults.append(f"with room again it ended with {code}: {said[-800:]}")
        elif (now := content(disk)) != whole:
            differ = [key for key in whole | now if whole.get(key) != now.get(key)]
            faults.append(f"the result is another: {differ}")
        tell({"way": way, "command": name, "room": level, "full": full, "faults": faults})
        if not full:
            return


def inside(way: str, disk: Path, names: list[str], levels: list[int]) -> None:
    """Try the commands; a line of JSON each time."""
    with tempfile.TemporaryDirectory(prefix="drv-given-") as folder:
        given = Path(folder)
        prepare(given, names)
        for name in names:
            try_command(way, disk, name, given, levels, say)


def try_way(way: str, names: list[str], levels: list[int]) -> list[dict[str, Any]]:
    """Everything one way, in a process of its own.

    Raises:
        PermissionError: where no disk can be mounted.
    """
    with tempfile.TemporaryDirectory(prefix="drv-disk-") as disk:
        again = [sys.executable, __file__, "--inside", disk, "--way", way]
        again += ["--commands", *names, "--levels", *map(str, levels)]
        if way == "disk":
            mount = f'mount -t tmpfs -o size={DISK_BYTES} none "$0" && exec "$@"'
            again = ["unshare", "-rm", "sh", "-c", mount, disk, *again]
            if (
                shutil.which("unshare") is None
                or subprocess.run(
                    ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs none "$0"', disk],
                    capture_output=True,
                    check=False,
                ).returncode
            ):
                raise PermissionError("no disk can be mounted here (unshare -rm, tmpfs)")
        done = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--way", choices=["disk", "limit"])
    parser.add_argument("--commands", nargs="*")
    parser.add_argument("--levels", nargs="*", type=int, default=LEVELS, help="KiB of room")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.commands or list(commands(Path(), Path()))
    if options.inside is not None:
        inside(options.way, options.inside, names, options.levels)
        return 0
    tried = []
    for way in [options.way] if options.way else ["disk", "limit"]:
        tried += try_way(way, names, options.levels)
    bad = [each for each in tried if each["faults"]]
    for each in bad:
        say(each)
    full = sum(each["full"] for each in tried)
    sys.stdout.write(f"{full} times full, {len(bad)} of them with a fault\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
