"""Which leader epoch began at which offset. It shows a follower where its log differs from the leader's (KIP-101)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from tidemark.storage.checkpoints import decode_lines, encode_lines
from tidemark.storage.errors import CorruptFile
from tidemark.storage.files import Files

UNDEFINED = -1


class EpochCache:
    """Epochs and their first offsets, both rising; every change is written to leader-epoch-checkpoint, but for two that
    a log that is opened anew finds by itself. An epoch that has no records yet is written with its first. (When a node
    takes over thousands of logs, most of them get no record for a while.) What the log's start leaves behind is cut off
    in the file with the next change."""

    __slots__ = ("_epochs", "_files", "_is_new", "_path", "_starts", "changes", "is_known", "latest", "saved")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED
        self.saved = UNDEFINED  # the latest epoch that the file knows
        self.changes = 0  # how often the file was written since it was loaded
        self._is_new = False  # there is no file yet
        self.is_known = True  # there was a file that could be read

    @classmethod
    def load(cls, files: Files, path: str) -> EpochCache:
        """Reads the checkpoint. A damaged one counts as absent: `restore` it from the log's batches."""
        cache = cls(files, path)
        try:
            for line in decode_lines(files.read_all(path), path=path):
                epoch, start = map(int, line.split())
                cache._put(epoch=epoch, start=start)
        except FileNotFoundError:
            cache._is_new = True
            cache.is_known = False
        except (ValueError, CorruptFile):
            cache._epochs.clear()
            cache._starts.clear()
            cache.is_known = False
        cache._changed()
        cache.saved = cache.latest
        return cache

    def restore(self, entries: Iterable[tuple[int, int]]) -> None:
        """Replaces everything by (epoch, first offset) as the log's batches say."""
        self._epochs.clear()
        self._starts.clear()
        for epoch, start in entries:
            if not self._epochs or epoch > self._epochs[-1]:
                self._put(epoch=epoch, start=start)
        self._save()
        self.is_known = True

    def renamed_to(self, path: str) -> None:
        self._path = path

    def rewrite(self) -> None:
        """The file is not as it was written: it is made anew from what is known."""
        self._save()

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def announce(self, *, epoch: int, start: int) -> None:
        """Epoch `epoch` will begin at `start`, the log's end: known from now on, written with its first batch."""
        if epoch != self.latest:
            self._put(epoch=epoch, start=start)

    def assign(self, *, epoch: int, start: int) -> None:
        """Epoch `epoch` begins at offset `start`. What contradicts that was never agreed upon and goes."""
        if epoch == self.saved == self.latest:
            return
        before = self._epochs.copy(), self._starts.copy()
        if epoch != self.latest:
            self._put(epoch=epoch, start=start)
        try:
            self._save()
        except OSError:
            # The caller's append fails; memory must not know what the file does not, or it would never be written.
            self._epochs, self._starts = before
            self._changed()
            raise

    def end_offset(self, epoch: int, *, log_end: int) -> tuple[int, int]:
        """The largest known epoch not after `epoch`, and the offset where it ends; (-1, -1) when unknown."""
        if epoch == UNDEFINED or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end
        following = bisect_right(self._epochs, epoch)
        known = self._epochs[following - 1] if following else epoch
        return known, self._starts[following]

    def epoch_at(self, offset: int) -> int:
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else UNDEFINED

    def truncate_end(self, offset: int) -> None:
        """The log now ends at `offset`: epochs that began there or later are gone."""
        kept = len(self._starts)
        while kept and self._starts[kept - 1] >= offset:
            kept -= 1
        if kept < len(self._starts):
            self._cut(slice(kept, None))

    def truncate_start(self, offset: int) -> None:
        """The log now starts at `offset`: the epoch that holds it begins there, earlier ones are gone. That is not
        worth a write, which on a busy disk takes long: a log that is opened starts at its first segment or later, and
        cuts off as much."""
        first = bisect_right(self._starts, offset) - 1
        if first >= 0:
            self._starts[first] = offset
            del self._epochs[:first], self._starts[:first]

    def clear(self) -> None:
        self._cut(slice(None))

    def _cut(self, gone: slice) -> None:
        del self._epochs[gone]
        del self._starts[gone]
        self._save()

    def _put(self, *, epoch: int, start: int) -> None:
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        self.latest = epoch

    def _changed(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED

    def _save(self) -> None:
        # Not synced: after a power cut recovery reads the epochs back from the batches beyond the recovery point, and
        # a flush that moves the recovery point syncs this file first.
        self._changed()
        lines = [f"{epoch} {start}" for epoch, start in self.entries()]
        text = encode_lines(lines)
        if self._is_new:
            self._files.overwrite(
                self._path, text
            )  # torn, it counts as absent, which it was; and a rename costs as much
            self._is_new = False
        else:
            self._files.replace(self._path, text, sync=False)
        self.saved = self.latest
        self.changes += 1

    @property
    def path(self) -> str:
        return self._path
