"""A setting that nothing reads would be a promise that nobody keeps."""

import ast
from pathlib import Path

import exo.ops
from exo.ops.settings import describe_settings

FOLDER = Path(next(iter(exo.ops.__path__)))


def test_every_setting_is_read_somewhere() -> None:
    read = {
        node.attr
        for file in FOLDER.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    assert set(describe_settings()) <= read
