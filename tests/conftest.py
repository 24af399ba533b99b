"""For all tests: on CI hypothesis draws the same examples on each run; by hand it draws new ones."""

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("repeatable")
