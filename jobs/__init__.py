"""Jobs for Spark: one file a job, `transform` pure and `main(argv)` around it.

In the wheel this package is `rmqstore.jobs`, since a top-level `jobs` is a name that users have themselves: so its
modules import each other by relative imports.
"""
