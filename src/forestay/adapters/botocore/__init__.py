"""What needs botocore: addresses of S3 that are signed."""
