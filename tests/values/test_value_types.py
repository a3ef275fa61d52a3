"""The page that says what values become."""

import pytest

pytest.importorskip("grpc_tools")

import value_types


def test_the_page_has_what_exports_have():
    page = value_types.PAGE.read_text()
    assert page == value_types.written(page), (
        "PYTHONPATH=tests/support python tests/support/value_types.py writes it again"
    )
