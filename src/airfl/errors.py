"""The errors a user can meet. Each is one sentence: what is wrong, what was expected, how to fix it."""

from __future__ import annotations

import errno
from collections.abc import Sequence


class InputError(ValueError):
    """The request cannot be carried out as written; nothing was run and nothing written."""


class LostError(InputError):
    """Machines that a run needs are gone for good; what was done before they went can be gone on with."""


class DivergedError(RuntimeError):
    """Training produced NaN or infinity; what was recorded before is kept.

    ``state`` is where the run stands: its ledgers include the round that diverged, which was sent all the same.
    """

    def __init__(self, message: str, state: object = None) -> None:
        super().__init__(message)
        self.state = state


class Problems(ValueError):
    """Several things that are wrong with one piece of input, for those who check all of it before they complain."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


#: What the system says by number, in words that follow the name of a file.
_WORDS = {
    errno.ENOENT: "there is no such file or folder",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EROFS: "it lies on a disk that can only be read",
    errno.EISDIR: "it is a folder, not a file",
    errno.ENOTDIR: "part of its path is a file, not a folder",
    errno.EEXIST: "it is there already",
    errno.ENOTEMPTY: "it is a folder that is not empty",
    errno.ENOSPC: "there is no space left on the disk",
    errno.EDQUOT: "your share of the disk is used up",
    errno.EFBIG: "it would be larger than files may be here",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "it is a link that leads back to itself",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
    errno.EIO: "the disk does not answer as it should",
    errno.EINVAL: "no file can have that name, or be used in that way",
    errno.ECONNREFUSED: "nobody listens there",
    errno.EHOSTUNREACH: "there is no way to that machine",
    errno.ENETUNREACH: "there is no network",
}


def in_words(error: BaseException) -> str:
    """Why something failed, in plain words: no error numbers, no codecs. What is not the system's stays as it is."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {error.start + 1:,})"
    if not isinstance(error, OSError):
        return str(error)
    reason = getattr(error, "reason", None)  # of an address that cannot be opened
    if isinstance(reason, OSError):
        return in_words(reason)
    if isinstance(error, TimeoutError):
        return "it took too long to answer"
    if error.errno in _WORDS:
        return _WORDS[error.errno]
    said = error.strerror or str(reason or error)
    return f"{said[:1].lower()}{said[1:]}"


def about_file(error: BaseException) -> str:
    """The same with the name of the file first, where the error has one."""
    name = error.filename if isinstance(error, OSError) else None
    return in_words(error) if name is None else f"`{name}`: {in_words(error)}"


def failure(error: BaseException) -> str:
    """Why code that may raise anything failed: the system's reasons in words, others with the kind of the error."""
    if isinstance(error, OSError | InputError):
        return about_file(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def listed(what: str, problems: Sequence[str]) -> str:
    """One problem as it is; several in a list, one line each."""
    if len(problems) == 1:
        return problems[0]
    return "\n".join([f"{what} has {len(problems)} problems:", *(f"• {problem}" for problem in problems)])
