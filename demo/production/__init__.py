"""Runs the services of docker-compose.yaml natively: `make up-production` and `make smoke-production`."""
