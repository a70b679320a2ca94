"""What is resumed must meet the code that began it."""

from __future__ import annotations

import pytest

from airfl.errors import InputError
from airfl.imports import code_identity, source_sha256
from airfl.runs.sameness import require_same_code


def test_the_same_code_goes_on_and_other_code_only_when_told(caplog):
    now = code_identity()
    assert now["source"] == source_sha256()
    require_same_code(now, "here")
    assert caplog.text == ""
    for other in ({**now, "source": "0" * 12}, {**now, "torch": "1.0"}, {**now, "extra": "1"}):
        with pytest.raises(InputError, match=r"`here` was begun with other code .*begun with .*--anyway"):
            require_same_code(other, "here")
        require_same_code(other, "here", anyway=True)
        assert "going on anyway" in caplog.text
        caplog.clear()
    require_same_code(None, "here")
    assert "does not say" in caplog.text
