"""Jobs for Spark: one file a job, `transform` pure and `main(argv)` around it."""
