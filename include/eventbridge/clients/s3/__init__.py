"""What stores and targets on S3 share: clients, uploads, and errors."""
