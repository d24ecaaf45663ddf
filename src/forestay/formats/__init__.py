"""The external forms of documents."""
