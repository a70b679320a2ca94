"""What is installed and found, on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airfl.terminal import print_table, prose, words


def print_doctor(findings: Mapping[str, Any]) -> None:
    """What was found, as a table."""
    rows = [("python", findings["python"]), ("source of airfl", findings["source"])]
    for name, found in {**findings["versions"], **findings["extras"]}.items():
        rows.append((name, found or "not installed (optional)"))
    for name, folder in findings["datasets"].items():
        rows.append((f"data: {name}", folder or f"not found; it would be downloaded to {findings['cache']}"))
    rows.append(("GPU", ", ".join(findings["devices"]["cuda"]) or "none"))
    rows.append(("CPU", f"{findings['devices']['cpu']}, {findings['cores']} cores, {findings['threads']} threads"))
    print_table([words("what"), prose("found")], rows, header=False)
