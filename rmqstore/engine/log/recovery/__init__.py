"""From a look at a directory to a plan, and its carrying out."""
