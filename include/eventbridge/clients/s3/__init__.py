"""Clients, uploads and errors that stores and targets on S3 share."""
