"""Applications for spark-submit, in a folder without other modules, because Python puts it first on the path."""
