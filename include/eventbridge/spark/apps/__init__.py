"""Contains the applications for spark-submit, without other modules, because Python puts this folder first on the
path."""
