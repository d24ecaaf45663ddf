"""One folder for each library; a file is named after the port that it implements."""
