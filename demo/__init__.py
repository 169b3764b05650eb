"""A whole environment on this machine, for a look and for proof: `make up`, `make down`, `make demo`."""
