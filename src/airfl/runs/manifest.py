"""What a run's folder holds: a manifest of SHA-256s, and the one way in which files get there.

All files are written beside the old ones first. Then only renames are left: a manifest that vouches for nothing, the
files, the manifest that vouches for them. Whatever fails before leaves the old run as it was; whatever is cut short
between leaves a manifest that says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airfl.errors import InputError, about_file
from airfl.runs.signals import deferred
from airfl.version import __version__

FORMAT = "airfl-run/1"
MANIFEST = "manifest.json"
#: Before the name of everything that is still being written.
TEMPORARY = ".airfl-"
#: What a run is; the rest of its folder can be made from these.
DATA = ("config.toml", "rounds.parquet", "ledger.json", "model.safetensors", "provenance.json", "summary.json")
STORY = "story.json"
PAGE = "report.html"
FIGURES = tuple(f"figures/{name}.{kind}" for name in ("accuracy", "loss", "noise", "budget") for kind in ("png", "pdf"))
PERK = ("figures/perk.png", "figures/perk.pdf")
ALL = (*DATA, STORY, PAGE, *FIGURES, *PERK)


@dataclass(frozen=True)
class Manifest:
    """Files that are ours: with the SHA-256 that they have, or ``pending`` where nobody vouches for them."""

    files: Mapping[str, str]
    pending: tuple[str, ...] = ()

    def text(self) -> str:
        """As it is written."""
        content = {"format": FORMAT, "airfl": __version__, "files": dict(self.files), "pending": list(self.pending)}
        return json.dumps(sealed(content), indent=1) + "\n"


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with a checksum over all of it, in the order in which it is written."""
    return {**content, "sha256": _checksum(content)}


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Whether a content is what ``sealed`` returned."""
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return content.get("sha256") == _checksum(rest)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None where there is none, ``InputError`` where it is damaged or not ours."""
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        sound = data["format"] == FORMAT and is_sealed(data)
        found = Manifest(dict(data["files"]), tuple(data["pending"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound or not {*found.files, *found.pending} <= set(ALL):
        raise InputError(f"`{path}` is damaged, or not a manifest of a run by this version; restore the original file")
    return found


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, of this version or of an older one."""
    return (folder / MANIFEST).is_file() or _is_old_run(folder)


def check_contents(folder: Path, manifest: Manifest, names: Iterable[str]) -> dict[str, bytes]:
    """The bytes of those files that the manifest has, if all are what was written."""
    found: dict[str, bytes] = {}
    for name in names:
        if name in manifest.pending:
            raise InputError(
                f"`{folder}` is not a finished run: its writing was cut short; go on with airfl run --resume {folder} "
                "if it has checkpoints, or run it again"
            )
        if name not in manifest.files:
            continue
        try:
            found[name] = (folder / name).read_bytes()
        except OSError as error:
            raise InputError(f"`{folder}` is not a finished run: {about_file(error)}") from None
        if hashlib.sha256(found[name]).hexdigest() != manifest.files[name]:
            raise InputError(
                f"`{folder}` is not a finished run: `{name}` is not what was written (its SHA-256 differs from the "
                "manifest's); restore the original file, or run it again"
            )
    return found


def require_ours(folder: Path, names: Collection[str] = ALL) -> None:
    """Refuse links, and files of others under names that are to be written."""
    if (folder / "figures").is_symlink():
        raise InputError(f"`{folder / 'figures'}` is a link; nothing is written through links: remove it")
    ours = _ours(folder)
    for name in (*names, *sorted(ours), MANIFEST):
        path = folder / name
        if path.is_symlink():
            raise InputError(f"`{path}` is a link; nothing is written through links: remove it")
        if (path.exists() and name not in ours) or path.is_dir():
            raise InputError(f"`{path}` is in the way and was not written by airfl; move it or name another folder")


def put(folder: Path, files: Mapping[str, bytes], drops: Collection[str] | None = None) -> None:
    """Write files, all or none, and let the manifest vouch for them.

    Args:
        drops: what else of ours goes; default: all. The rest stays as it is.
    """
    require_ours(folder, files)
    before, ours = read_manifest(folder), _ours(folder) - {MANIFEST}
    gone = {name for name in ours if drops is None or name in drops} - set(files)
    # An older version's run that is only reported on gets no manifest: nobody can vouch for it now.
    vouched = before is not None or drops is None or not ours
    kept = {} if before is None else {k: v for k, v in before.files.items() if k not in gone and k not in files}
    pending = () if before is None else tuple(name for name in before.pending if name not in gone and name not in files)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifests = (
        Manifest(kept, tuple(sorted({*pending, *gone, *files}))),
        Manifest({**kept, **hashes}, pending),
    )
    with deferred():
        sweep_up(folder)
        staging = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}staging-", dir=folder))
        try:
            staged = {name: _stage(staging / str(i), files[name], folder / name) for i, name in enumerate(files)}
            first, last = (
                _stage(staging / f"manifest-{i}", manifest.text().encode(), folder / MANIFEST)
                for i, manifest in enumerate(manifests)
            )
            _swap(folder, staged, gone, (first, last) if vouched else None)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _swap(folder: Path, staged: Mapping[str, Path], gone: Collection[str], manifests: tuple[Path, Path] | None) -> None:
    if manifests:
        os.replace(manifests[0], folder / MANIFEST)
    for name, path in staged.items():
        (folder / name).parent.mkdir(exist_ok=True)
        os.replace(path, folder / name)
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    if manifests:
        os.replace(manifests[1], folder / MANIFEST)
    _sync(folder)


def sweep_up(folder: Path) -> None:
    """Remove what a writer that was killed left under our temporary names."""
    for path in folder.glob(f"{TEMPORARY}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _ours(folder: Path) -> set[str]:
    """Names in a folder that are ours to replace or remove."""
    manifest = read_manifest(folder) if not (folder / MANIFEST).is_symlink() else None
    if manifest is not None:
        return {*manifest.files, *manifest.pending, MANIFEST}
    return {name for name in ALL if (folder / name).exists()} if _is_old_run(folder) else set()


def _is_old_run(folder: Path) -> bool:
    needed = ("config.toml", "summary.json", "ledger.json")
    return not (folder / MANIFEST).exists() and all((folder / name).is_file() for name in needed)


def _stage(path: Path, data: bytes, target: Path) -> Path:
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # a name must never point to bytes that are still on their way
        path.chmod(0o644)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
    return path


def _sync(folder: Path) -> None:
    """The names too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
