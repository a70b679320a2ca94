"""What is installed and found."""

from __future__ import annotations

import json

from airfl.cli.app import Json, app


@app.command()
def doctor(as_json: Json = False) -> None:
    """What is installed, which data are found, which devices and threads there are."""
    from airfl.analysis.doctor import examine
    from airfl.report.show.doctor import print_doctor

    findings = examine()
    if as_json:
        print(json.dumps(findings))
    else:
        print_doctor(findings)
