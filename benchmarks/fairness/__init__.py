"""The parts of `make bench-fairness`: priorities on few slots, a quiet topic beside a hot one, overrides."""
