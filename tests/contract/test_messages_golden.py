"""Every message of the wire against its golden file: a changed byte is a decision, not an accident.

To accept a change on purpose, delete the file and run the test: it writes the new one and fails once.
"""

from pathlib import Path

import msgspec
import pytest

from exo.streams import codec
from support.messages import message_types, sample

GOLDEN = Path(__file__).parent / "golden"
TYPES = message_types()


@pytest.mark.parametrize("name", sorted(TYPES))
def test_message_is_encoded_as_its_golden_file_says(name: str) -> None:
    golden = GOLDEN / f"{name}.json"
    encoded = codec.encode(sample(TYPES[name])) + b"\n"
    if not golden.exists():
        GOLDEN.mkdir(exist_ok=True)
        golden.write_bytes(encoded)
        pytest.fail(f"wrote {golden.name}: look at it and commit it")
    assert encoded == golden.read_bytes()


@pytest.mark.parametrize("name", sorted(TYPES))
def test_golden_file_decodes_to_the_message(name: str) -> None:
    kind = TYPES[name]
    assert msgspec.json.decode((GOLDEN / f"{name}.json").read_bytes(), type=kind) == sample(kind)


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(TYPES)
