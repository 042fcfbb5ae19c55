"""Commands that are killed, or stopped by Ctrl-C, at every change they make to the disk.

    python tests/kills.py                        every command, at up to 60 places each
    python tests/kills.py --commands rows --places 10 --signals KILL

A command is run once to count its changes (files opened for writing, renamed, linked, removed,
folders made), then anew for each place: the signal comes right before that change.  The same
command again must give what the unbroken one gave, and somebody's files must stand.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.full_disk import PLAYED, clear, commands, content, prepare, say  # noqa: E402

CHANGES = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
QUICK = ("clean", "rows", "web", "convert, parquet")
NAMES = (*QUICK, "shuffle", "convert", "export", "merge", "rollout", "eval", "sft", "igpo")


def changes_there(event: str, arguments: tuple[Any, ...], disk: str) -> bool:
    """Whether an audited event changes something on the disk that is watched."""
    if event not in CHANGES:
        return False
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        wants = flags & (os.O_WRONLY | os.O_RDWR) if mode is None else set("wax+") & set(mode)
        if not wants:
            return False
    places = [each for each in arguments[:2] if isinstance(each, str | bytes | os.PathLike)]
    return any(os.fsdecode(each).startswith(disk) for each in places)


def play(arguments: list[str], disk: Path, place: int | None, number: int) -> tuple[int, int, str]:
    """A command in a child, with a signal at a place; its end, changes made, standard error."""
    counted, told = disk.parent / "counted", disk.parent / "told"
    counted.write_text("0")
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = _in_child(arguments, disk, place, number, counted, told)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), int(counted.read_text()), told.read_text()


def _in_child(
    arguments: list[str], disk: Path, place: int | None, number: int, counted: Path, told: Path
) -> int:
    from trainers.cli import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, path in ((1, os.devnull), (2, told)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    count = 0

    def watch(event: str, given: tuple[Any, ...]) -> None:
        nonlocal count
        if changes_there(event, given, str(disk)):
            count += 1
            if count == place:
                os.kill(os.getpid(), number)

    sys.addaudithook(watch)
    try:
        return main(arguments)
    finally:
        sys.stderr.flush()
        counted.write_text(str(count))


def try_command(
    name: str, given: Path, disk: Path, places: int, signals: list[int]
) -> list[dict[str, Any]]:
    """A command killed at up to so many of its places, by each signal."""
    arguments = commands(given, disk / "out")[name]
    clear(disk)
    code, changes, said = play(arguments, disk, None, 0)
    assert code == 0, f"{name} ended with {code}: {said}"
    whole, tried = content(disk), []
    step = max(1, -(-changes // places))
    for number in signals:
        for place in range(1, changes + 1, step):
            clear(disk)
            (disk / "mine.txt").write_text("mine")
            code, _, said = play(arguments, disk, place, number)
            faults = []
            stopped = {signal.SIGKILL: (-signal.SIGKILL,), signal.SIGINT: (130, 0)}[number]
            if code not in stopped or "Traceback" in said:
                faults.append(f"it ended with {code}: {said[-1500:]}")
            code, _, said = play(arguments, disk, None, 0)
            if code and not ("--force" not in arguments and "exists; name" in said):
                faults.append(f"again it ended with {code}: {said[-800:]}")
            now = content(disk)
            if now.pop("mine.txt", None) != b"mine":
                faults.append("somebody's file is gone")
            differ = [key for key in whole | now if whole.get(key) != now.get(key)]
            if differ:
                faults.append(f"the result is another: {differ}")
            left = [str(path) for path in disk.rglob("*.tmp")]
            if left:
                faults.append(f"left {left}")
            found = {"command": name, "place": place, "of": changes, "faults": faults}
            tried.append({**found, "signal": signal.Signals(number).name})
            if faults:
                say(tried[-1])
    return tried


def _import(names: list[str]) -> None:
    """What the commands import, once."""
    import pyarrow.parquet
    import rich.console
    import rich.progress

    import drv_env.cassette
    import replay.pipeline
    import replay.web
    import trainers.commands.agent_setup

    assert all((pyarrow.parquet, rich.console, rich.progress, drv_env.cassette, replay.pipeline))
    assert all((replay.web, trainers.commands.agent_setup))
    if PLAYED & set(names):
        import trainers.commands.train

        assert trainers.commands.train


def try_all(names: list[str], places: int, signals: list[int]) -> list[dict[str, Any]]:
    """Every command; see :func:`try_command`."""
    with tempfile.TemporaryDirectory(prefix="drv-kills-") as folder:
        given, disk = Path(folder) / "given", Path(folder) / "disk"
        given.mkdir()
        disk.mkdir()
        child = os.fork()  # so that no thread of what it uses is there when the others are forked
        if child == 0:
            code = 1
            try:
                prepare(given, names)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        _import(names)
        tried = []
        for name in names:
            found = try_command(name, given, disk, places, signals)
            sys.stderr.write(f"{name}: {len(found)}\n")
            tried += found
        shutil.rmtree(disk)
        return tried


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--commands", nargs="*", default=NAMES)
    parser.add_argument("--places", type=int, default=60, help="of each command, at most")
    parser.add_argument("--signals", nargs="*", default=["KILL", "INT"])
    options = parser.parse_args()
    signals = [signal.Signals[f"SIG{name}"].value for name in options.signals]
    tried = try_all(list(options.commands), options.places, signals)
    bad = [each for each in tried if each["faults"]]
    sys.stdout.write(f"{len(tried)} times killed or stopped, {len(bad)} of them with a fault\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
