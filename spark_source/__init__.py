"""The Spark data source `rmqstore`: options and schemas on one side, ready-made Arrow batches on the other."""
