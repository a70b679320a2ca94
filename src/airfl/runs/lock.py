"""One writer per folder: whoever runs, sweeps, reproduces or reports holds its lock."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from airfl.errors import InputError, about_file

LOCK = ".airfl.lock"


@contextmanager
def locked(out: str | Path) -> Iterator[None]:
    """Hold a folder, which is made if need be; nothing of the lock is left behind, nor a folder that stayed empty."""
    folder = Path(out)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (mode := _mode(folder)) and not stat.S_ISREG(mode):
            raise InputError(f"`{folder / LOCK}` is a folder or a link, and no lock of airfl; remove it")
        lock = FileLock(folder / LOCK)
        lock.acquire(blocking=False)
    except Timeout:
        raise _busy(out) from None
    except OSError as error:
        _remove_empty(made)
        raise InputError(f"the folder `{out}` is not writable: {about_file(error)}") from None
    try:
        yield
    finally:
        _let_go(lock, folder)
        _remove_empty(made)


def require_free(out: str | Path) -> None:
    """Refuse a folder in which somebody is at work."""
    if is_locked(Path(out)):
        raise _busy(out)


def has_lock(folder: Path) -> bool:
    """Whether the file of a lock lies in a folder; nobody holds a folder or a link of its name."""
    return stat.S_ISREG(_mode(folder))


def is_locked(folder: Path) -> bool:
    """Whether somebody is at work in a folder."""
    if not has_lock(folder):
        return False
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except OSError as error:  # held (a time-out is one of these), or made by somebody whose files we may not open
        return error.errno != errno.EROFS  # nobody writes on a disk that can only be read
    _let_go(lock, folder)
    return False


def _mode(folder: Path) -> int:
    """What kind of thing has the lock's name; 0: nothing."""
    try:
        return (folder / LOCK).lstat().st_mode
    except OSError:
        return 0


def _busy(out: str | Path) -> InputError:
    return InputError(f"another airfl is at work in `{out}`; wait for it or name another folder")


def _let_go(lock: FileLock, folder: Path) -> None:
    """Remove the file while it is held: who opened it before and locks it after finds it without a name, and waits."""
    with suppress(OSError):  # some systems remove no open file: then it stays, unlocked
        (folder / LOCK).unlink(missing_ok=True)
    lock.release()


def _remove_empty(made: list[Path]) -> None:
    with suppress(OSError):
        for path in made:
            path.rmdir()
