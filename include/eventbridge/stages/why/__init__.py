"""Says of one event where it lies, what every rule says to it, and all that was done with it."""
