"""TensorBoard's event files, written at once and on the caller's thread.

TensorBoard's own writer has a thread, whose failure is told late and leaves half a record;
here a record is in the file when it is logged, or the file is as it was.
"""

from __future__ import annotations

import io
import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from drv_env.whole_files import append


class EventFile:
    """One file of events in a folder, after those that are there.

    Args:
        folder: made where it is missing.
        first: the step that is logged first; events of earlier files from this step on count
            no more, as TensorBoard shows them.

    Raises:
        OSError: when it can't be written.
    """

    def __init__(self, folder: Path, first: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        numbers = [re.match(r"events\.out\.tfevents\.(\d+)\.", item) for item in os.listdir(folder)]
        newest = max((int(found[1]) for found in numbers if found), default=0)
        stamp = max(int(time.time()), newest + 1)  # files are read in the order of their names
        self.path = folder / f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}"
        self._file = self.path.open("xb", buffering=0)
        try:
            self._write(
                Event(wall_time=time.time(), step=first, file_version="brain.Event:2"),
                Event(
                    wall_time=time.time(),
                    step=first,
                    session_log=SessionLog(status=SessionLog.START),
                ),
            )
        except BaseException:
            self.close()
            self.path.unlink(missing_ok=True)
            raise

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers by name at a step.

        Raises:
            OSError: when they can't be written; the file is as it was.
        """
        found = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=found)))

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()

    def _write(self, *events: Event) -> None:
        gathered = io.BytesIO()
        records = RecordWriter(gathered)
        for event in events:
            records.write(event.SerializeToString())
        append(self._file, gathered.getvalue())
