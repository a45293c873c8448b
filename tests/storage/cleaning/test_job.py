from __future__ import annotations

import errno
import pickle

from tidemark.storage import CleaningFailed, is_disk_failure


def test_a_failure_in_another_process_still_tells_whether_a_disk_has_failed() -> None:
    for number in (errno.EIO, errno.ENOSPC):
        failure = CleaningFailed("t-0", is_passing=True)
        failure.__cause__ = OSError(number, "why")
        received = pickle.loads(pickle.dumps(failure))
        assert (str(received), received.is_passing) == ("t-0", True)
        assert is_disk_failure(received) == (number == errno.EIO)
