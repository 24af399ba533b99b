"""The golden stores."""

from tests.golden.conftest import store_of

__all__ = ["store_of"]
