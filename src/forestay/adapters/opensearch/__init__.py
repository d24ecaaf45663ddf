"""Jobs, records, pilots and heartbeats in OpenSearch."""
