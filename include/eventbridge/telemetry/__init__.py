"""What the product tells of itself while it works: for traces and metrics; nobody listens by default."""
