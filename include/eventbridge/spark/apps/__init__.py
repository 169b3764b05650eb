"""What spark-submit runs. A folder of its own: Python puts it first on the path, where no other module may lie."""
