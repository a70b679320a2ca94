"""What Flower's nodes answer, as updates of devices; what cannot be used counts as zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from flwr.app import ArrayRecord, Message

from airfl.flower.layout import Layout, MisfitError


@dataclass(frozen=True)
class Question:
    """What was sent out in a round.

    Attributes:
        group: the round in the messages' metadata; an answer to an older one does not count.
        devices: device numbers of the nodes that were asked.
        sent: θ as nodes got it, [d].
        learning_rate: η; updates are (θ − θ_local)/η.
    """

    group: str
    devices: Mapping[int, int]
    sent: torch.Tensor
    learning_rate: float


@dataclass(frozen=True)
class Answers:
    """Updates by device number, and why others count as zero.

    Attributes:
        silent: devices that answered nothing, or an error.
        strays: messages that nobody had asked for, or asked for twice.
    """

    updates: Mapping[int, torch.Tensor]
    lost: Mapping[int, str]
    silent: frozenset[int] = field(default_factory=frozenset)
    strays: int = 0

    def in_words(self) -> str:
        """What was wrong with them; nothing if all is well."""
        counts = Counter(self.lost.values())
        words = [f"{count} {why}" for why, count in sorted(counts.items())]
        if self.strays:
            words.append(f"{self.strays} messages that nobody had asked for were left aside")
        return ", ".join(words)


def read_replies(question: Question, replies: Iterable[Message], layout: Layout) -> Answers:
    """Each node's first answer counts, and only that of nodes that were asked in this round.

    Nothing that a node sends raises an error here: whether training goes on must not depend on one device.
    """
    updates: dict[int, torch.Tensor] = {}
    lost: dict[int, str] = {}
    silent, strays = set(), 0
    for message in replies:
        device = question.devices.get(message.metadata.src_node_id)
        answered = device in updates or device in lost
        if device is None or answered or message.metadata.group_id != question.group:
            strays += 1
        elif not message.has_content():
            lost[device] = "answered with an error"
            silent.add(device)
        else:
            found = _update(question, message, layout)
            if isinstance(found, str):
                lost[device] = found
            else:
                updates[device] = found
    for device in question.devices.values():
        if device not in updates and device not in lost:
            lost[device] = "did not answer"
            silent.add(device)
    return Answers(updates, lost, frozenset(silent), strays)


def _update(question: Question, message: Message, layout: Layout) -> torch.Tensor | str:
    """Δ of one answer, or why there is none."""
    try:
        local = layout.vector(_only(message))
    except MisfitError:
        return "sent arrays of another shape"
    except Exception:  # bytes from outside may fail in any way
        return "sent what cannot be read"
    update = (question.sent - local) / question.learning_rate
    return update if bool(torch.isfinite(update).all()) else "sent NaN or infinity"


def _only(message: Message) -> ArrayRecord:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise MisfitError(f"{len(records)} array records")
    return records[0]
