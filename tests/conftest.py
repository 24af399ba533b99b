"""For all tests: on CI hypothesis draws the same examples on each run; by hand it draws new ones."""

import os

from hypothesis import settings

# How long an example takes says more of the machine, and of what else runs there, than of the code.
settings.register_profile("patient", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("patient")
if os.environ.get("CI"):
    settings.load_profile("repeatable")
