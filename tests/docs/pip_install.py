"""Stands for `pip install FOLDER` on a page: puts the content of the package's wheel where PYTHONPATH says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from installed_package import install_sources

install_sources(Path(sys.argv[2]), Path(os.environ["PYTHONPATH"]))
