"""Makes the decisions on which data safety depends. All functions are pure and receive the time as an argument."""
