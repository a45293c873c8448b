"""What only some systems have, each with what the others get instead. Tidemark is fast on Linux and runs on macOS.

Everything that exists on Linux alone is reached through this module, so that there is one place to read and to port.
What is missing is looked up when the module is imported: a call costs what the system call costs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import platform
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

IS_LINUX: Final = sys.platform == "linux"

O_DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)
O_DIRECT: Final[int | None] = getattr(os, "O_DIRECT", None)  # reads past the page cache
MADV_HUGEPAGE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)

_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_PROBE_EVERY_BYTES: Final = 64 << 10  # half of what Linux reads ahead by default
_LOAD_BYTES: Final = 256 << 10
_AHEAD_BYTES: Final = 2 << 20
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_SYS_CACHESTAT: Final = 451  # on every architecture
_SYS_SCHED_ATTR: Final = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}  # to set and to get
_SCHED_ATTR: Final = struct.Struct("=IIQiIQQQ")  # as of its first version
_SYNC_FILE_RANGE_WRITE: Final = 2
_FALLOC_FL_KEEP_SIZE: Final = 1
_EXT4_SUPER_MAGIC: Final = 0xEF53  # of ext2 and ext3, too
_FREE_SHARE_MIN: Final = 20  # a twentieth of the disk is left to those who need it now
_STATFS_BYTES: Final = 256  # more than it has; the kind of file system is the first number in it
_M_TRIM_THRESHOLD: Final = -1  # of mallopt(3)
_M_MMAP_THRESHOLD: Final = -3
_WITHOUT_NO_WAIT: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_OPEN_FILES_MAX_MACOS: Final = 10_240  # OPEN_MAX
_WITHOUT_FULL_SYNC: Final = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)


# Syncing


def _sync_through_the_drive(fd: int) -> None:
    """On macOS fsync hands the bytes to the drive, which may keep them in its cache; F_FULLFSYNC makes it write them.
    Network file systems do not know it."""
    assert _FULL_SYNC is not None
    try:
        fcntl.fcntl(fd, _FULL_SYNC)
    except OSError as error:
        if error.errno not in _WITHOUT_FULL_SYNC:
            raise
        os.fsync(fd)


# A file's bytes and its size are on the disk when it returns. `sync_all`: its other metadata too.
sync_all: Callable[[int], None] = os.fsync if _FULL_SYNC is None else _sync_through_the_drive
sync_data: Callable[[int], None] = getattr(os, "fdatasync", sync_all) if _FULL_SYNC is None else sync_all


# Reading and sending


def _read_and_send(out_fd: int, in_fd: int, offset: int, count: int) -> int:
    """`os.sendfile` where its meaning differs: macOS reports a partial send as an error."""
    data = os.pread(in_fd, min(count, 256 << 10), offset)
    return os.write(out_fd, data) if data else 0


send_file: Callable[[int, int, int, int], int] = os.sendfile if IS_LINUX and hasattr(os, "sendfile") else _read_and_send


def _cachestat() -> Callable[[int, int, int], int]:
    """How many pages of a range are in memory, at one price for any range; -1 where the kernel (before 6.5) or a
    container cannot tell."""
    if not IS_LINUX:
        return lambda _fd, _position, _length: -1
    import ctypes  # not before it is needed: it takes a few milliseconds and two megabytes

    call = ctypes.PyDLL(None).syscall  # it never waits: to let go of the interpreter lock would cost more than it
    call.argtypes = (ctypes.c_long, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
    numbers, address, asked_bytes = ctypes.c_uint64 * 7, ctypes.addressof, 16

    def cached_pages(fd: int, position: int, length: int) -> int:
        asked_and_found = numbers(position, length)
        at = address(asked_and_found)
        return -1 if call(_SYS_CACHESTAT, fd, at, at + asked_bytes, 0) else asked_and_found[2]

    return cached_pages


_cached_pages: Callable[[int, int, int], int] | None = None  # made on first use


def is_cached(fd: int, *, position: int, length: int, strictly: bool = True) -> bool:
    """Whether reading these bytes would not wait for the disk: False if some of them are not in the page cache. A page
    that the disk is still filling counts as cached, unless it is the last one and `strictly` is asked.

    Two or three microseconds. True where the system cannot say, so that a caller that moves cold reads to a thread goes
    on as if all were warm.
    """
    global _cached_pages
    if _NO_WAIT is None or length <= 0:
        return True
    if _cached_pages is None:
        _cached_pages = _cachestat()
    last = position + length - 1
    cached = _cached_pages(fd, position, length)
    if cached >= 0 and cached != last // _PAGE_BYTES - position // _PAGE_BYTES + 1:
        return False
    return (not strictly and cached >= 0) or _is_probed(fd, (last,) if cached >= 0 else _probes(position, last))


def _probes(first: int, last: int) -> Iterable[int]:
    return (*range(first, last, _PROBE_EVERY_BYTES), last)


def _is_probed(fd: int, positions: Iterable[int]) -> bool:
    """One byte at each of them, about a microsecond each."""
    assert _NO_WAIT is not None
    byte = [bytearray(1)]
    try:
        for at in positions:
            os.preadv(fd, byte, at, _NO_WAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # the file system does not know the flag
    return True


def read_cached(fd: int, length: int, position: int) -> bytes:
    """As `os.pread`, but raises BlockingIOError instead of waiting for the disk, where the system can tell."""
    buffer = bytearray(length)
    got = read_cached_into(fd, buffer, position)
    return bytes(buffer if got == length else memoryview(buffer)[:got])


def load_pages(fd: int, *, position: int, length: int) -> None:
    """Brings a range of a file into the page cache, and waits for the disk: for a thread. A range that is not there any
    more is no error: the caller finds out when it reads."""
    end = position + length
    if not IS_LINUX:
        while position < end and (data := os.pread(fd, min(_LOAD_BYTES, end - position), position)):
            position += len(data)
        return
    # The kernel's own read-ahead would be begun by the next read of these pages, which must not wait; begin it here.
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    # To nowhere: as read, for a fortieth of the time, as nothing is copied.
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while position < end and (sent := os.sendfile(nowhere, fd, position, end - position)):
            position += sent
    finally:
        os.close(nowhere)
    os.posix_fadvise(fd, position, _AHEAD_BYTES, os.POSIX_FADV_WILLNEED)


def _pread_into(fd: int, buffer: bytearray | memoryview, position: int) -> int:
    data = os.pread(fd, len(buffer), position)
    buffer[: len(data)] = data
    return len(data)


def _preadv_into(fd: int, buffer: bytearray | memoryview, position: int) -> int:
    return os.preadv(fd, [buffer], position)


# Fills a buffer from a position of a file and returns how many bytes there were.
read_into: Callable[[int, bytearray | memoryview, int], int] = _preadv_into if hasattr(os, "preadv") else _pread_into


def _read_cached_into(fd: int, buffer: bytearray | memoryview, position: int) -> int:
    assert _NO_WAIT is not None
    try:
        got = os.preadv(fd, [buffer], position, _NO_WAIT)
    except OSError as error:
        if error.errno not in _WITHOUT_NO_WAIT:
            raise
        return read_into(fd, buffer, position)
    # If it ends early, the rest is not cached (which this raises) or there is no more.
    if got < len(buffer) and os.preadv(fd, [bytearray(1)], position + got, _NO_WAIT):
        raise BlockingIOError(errno.EAGAIN, "it was not in the page cache a moment ago")
    return got


# As `read_into`, but raises BlockingIOError instead of waiting for the disk, where the system can tell.
read_cached_into: Callable[[int, bytearray | memoryview, int], int] = (
    read_into if _NO_WAIT is None else _read_cached_into
)


def _start_writeback() -> Callable[[int, int, int], None]:
    if not IS_LINUX:
        return lambda _fd, _position, _length: None
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "sync_file_range", None)
    if call is None:
        return lambda _fd, _position, _length: None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def start(fd: int, position: int, length: int) -> None:
        call(fd, position, length, _SYNC_FILE_RANGE_WRITE)

    return start


_writeback: Callable[[int, int, int], None] | None = None  # made on first use
_VMSTAT: Final = "/proc/vmstat"
_VMSTAT_BYTES: Final = 64 << 10


def start_writeback(fd: int, *, position: int, length: int) -> None:
    """The kernel begins to write these bytes to the disk, so that a sync later has less to wait for. It promises
    nothing: whatever goes wrong, that sync will tell."""
    global _writeback
    if _writeback is None:
        _writeback = _start_writeback()
    _writeback(fd, position, length)


def reserve_blocks(fd: int, *, position: int, length: int) -> None:
    """Gives a file blocks beyond its end, and leaves its size as it is: appending is cheaper then, and waits less. It
    promises nothing: whatever goes wrong, the appends will tell. Not where the disk is nearly full.

    Only on ext4, where it was measured: an append of 1 MB otherwise books 256 blocks in memory, one by one, under a
    lock that the writing out of the same file holds, too. Other file systems look ahead by themselves, or have a price
    for it."""
    if not IS_LINUX:
        return
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "fallocate"):
        return
    told = ctypes.create_string_buffer(_STATFS_BYTES)
    if library.fstatfs(fd, told) or ctypes.c_long.from_buffer(told).value != _EXT4_SUPER_MAGIC:
        return
    space = os.fstatvfs(fd)
    if space.f_bavail * _FREE_SHARE_MIN < space.f_blocks:
        return
    library.fallocate(fd, _FALLOC_FL_KEEP_SIZE, ctypes.c_int64(position), ctypes.c_int64(length))


def unwritten_share() -> float:
    """How much lies in memory that the disks have not got yet, as a share of what the system lets lie there: from 1 on
    it writes out what it can, and whoever writes more may have to wait. 0.0 where it does not say. 30 microseconds."""
    if not IS_LINUX:
        return 0.0
    try:
        with open(_VMSTAT, "rb", buffering=0) as vmstat:
            text = vmstat.read(_VMSTAT_BYTES)
    except OSError:
        return 0.0
    limit = _vmstat_pages(text, b"\nnr_dirty_background_threshold ")
    return (_vmstat_pages(text, b"\nnr_dirty ") + _vmstat_pages(text, b"\nnr_writeback ")) / limit if limit else 0.0


def _vmstat_pages(text: bytes, name: bytes) -> int:
    return int(text.partition(name)[2].partition(b"\n")[0] or 0)


def advise_sequential(fd: int) -> None:
    """The file will be read from one end to the other: a larger read-ahead pays."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)


@contextlib.contextmanager
def unnamed_file(data: bytes) -> Iterator[str]:
    """A path that reads as these bytes, for libraries that take secrets from files only: in memory on Linux, elsewhere
    a temporary file that only this user may read."""
    if hasattr(os, "memfd_create"):
        fd, path = os.memfd_create("secret", os.MFD_CLOEXEC), None
    else:
        import tempfile

        fd, path = tempfile.mkstemp()
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        yield path or f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
        if path is not None:
            os.unlink(path)


# Sockets


def stop_pacing(connected: socket.socket) -> None:
    """Lets a connection send as fast as it can, where the congestion control can be chosen per socket."""
    if hasattr(socket, "TCP_CONGESTION"):
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def has_hung_up(descriptor: int) -> bool:
    """Whether the other side of a connection has closed it, and nothing that it sent is left to read."""
    with socket.socket(fileno=os.dup(descriptor)) as connected:
        try:
            return connected.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


def keep_alive(connected: socket.socket, *, idle_seconds: int, interval_seconds: int, probes: int) -> None:
    """Probes a silent peer. Where the times cannot be set per socket, the system's own are used."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle: int | None = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))  # macOS: TCP_KEEPALIVE
    for option, value in (
        (idle, idle_seconds),
        (getattr(socket, "TCP_KEEPINTVL", None), interval_seconds),
        (getattr(socket, "TCP_KEEPCNT", None), probes),
    ):
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def limit_unacknowledged(connected: socket.socket, *, milliseconds: int) -> bool:
    """Ends a connection whose peer acknowledges nothing for so long, instead of after TCP's many retransmissions.
    False where the system cannot: the caller then has only its own time-outs."""
    option: int | None = getattr(socket, "TCP_USER_TIMEOUT", getattr(socket, "TCP_RXT_CONNDROPTIME", None))
    if option is None:
        return False
    counts_seconds = not hasattr(socket, "TCP_USER_TIMEOUT")  # macOS
    connected.setsockopt(socket.IPPROTO_TCP, option, -(-milliseconds // 1000) if counts_seconds else milliseconds)
    return True


# Processes


def _boot_clock() -> Callable[[], float]:
    # macOS counts sleep in CLOCK_MONOTONIC, but Python's time.monotonic there reads another clock, which does not.
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        if hasattr(time, name) and hasattr(time, "clock_gettime"):
            return partial(time.clock_gettime, getattr(time, name))
    return time.monotonic


# Seconds that go on while a process is stopped or its machine sleeps, whatever the wall clock is set to.
boot_clock: Callable[[], float] = _boot_clock()


def end_with_parent() -> None:
    """In a child: when the parent dies, however it does, this process gets a signal to stop. Linux only: on other
    systems a parent that is killed leaves its children running."""
    if not IS_LINUX:
        return
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGTERM)


def descriptor_limit() -> int:
    """How many files and connections this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def is_scarce(descriptor: int, *, share: float) -> bool:
    """Whether at least this share of the descriptors that there may be is open, now that this one is: the system gives
    the lowest number that is free."""
    return descriptor >= descriptor_limit() * share


def open_descriptors() -> int:
    """How many it has open."""
    if IS_LINUX and (count := os.stat("/proc/self/fd").st_size):  # since 6.2: tens of thousands take long to list
        return count
    return len(os.listdir("/proc/self/fd" if IS_LINUX else "/dev/fd")) - 1  # one is open to look


_THREAD: Final[int | None] = getattr(resource, "RUSAGE_THREAD", None)


def sleeps() -> int:
    """How often this thread has waited for something, a disk say, rather than for a processor; 0 if nobody counts."""
    return 0 if _THREAD is None else resource.getrusage(_THREAD).ru_nvcsw


def cpu_seconds() -> float:
    """User and system time of this process."""
    return time.process_time()


def resident_bytes() -> int:
    """The memory of this process; where the system does not say, the most that it ever was."""
    if IS_LINUX:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def raise_descriptor_limit() -> tuple[int, int]:
    """Raises this process's soft limit of open files to the hard one. Returns the limit before and after.

    The low soft limit exists for programs that use select(2); this one does not. macOS reports a hard limit without end
    but refuses more than OPEN_MAX, hence the second try.
    """
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, _OPEN_FILES_MAX_MACOS):
        if before != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or wanted > before):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return before, wanted
    return before, before


# Processors


def run_when_idle() -> bool:
    """From now on this thread gives way at once to whatever else wants to run; False if it cannot be so, or if
    `waited_to_run` could not tell how it fares. A low priority is not enough: Linux lets even such a process go on for
    milliseconds after another has been woken."""
    try:
        waited_to_run()
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (OSError, AttributeError, ValueError):
        return False
    return True


def lower_priority(niceness: int) -> None:
    """From now on other threads run rather than this one. Where threads have no priorities of their own, as on macOS,
    nothing changes."""
    if IS_LINUX:
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)


def take_short_turns(seconds: float) -> bool:
    """How long this thread, and those that it begins from now on, go on at once while others want its processor. Who
    asks for short turns is let in sooner, as soon as it is woken, and gets no more of the processor in all. False where
    the system does not know of this: Linux does since 6.12."""
    numbers = _SYS_SCHED_ATTR.get(platform.machine()) if IS_LINUX else None
    if numbers is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    import ctypes

    call = ctypes.CDLL(None).syscall
    set_number, get_number = numbers
    nice, wanted = os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), int(seconds * 1e9)
    attributes = ctypes.create_string_buffer(
        _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, wanted, 0, 0)
    )
    if call(set_number, 0, attributes, 0) or call(get_number, 0, attributes, _SCHED_ATTR.size, 0):
        return False
    told: int = _SCHED_ATTR.unpack(attributes.raw[: _SCHED_ATTR.size])[5]
    return told == wanted  # older ones take it, and forget it


def waited_to_run() -> tuple[float, float]:
    """How long this process's first thread has run, and how long it could have but had to wait: seconds. Raises OSError
    where the system does not say."""
    with open("/proc/self/schedstat") as file:
        run, waited, _ = file.read().split()
    return int(run) / 1e9, int(waited) / 1e9


# Memory


def keep_freed_memory(*, bytes_max: int) -> None:
    """For a process that takes and frees large pieces of memory all the time. The C library would return each to the
    system, which has to clear every page of the next one anew: a fifth of the time of such a process. glibc only."""
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
    except (ImportError, OSError, AttributeError):
        return
    for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
        mallopt(parameter, bytes_max)
