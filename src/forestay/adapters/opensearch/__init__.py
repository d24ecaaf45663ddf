"""Jobs, records, pilots and beats in OpenSearch."""
