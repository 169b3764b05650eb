"""The production shape of docker-compose.yaml, run natively: `make up-production` and `make smoke-production`."""
