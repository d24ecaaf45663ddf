"""Routes of the web pages; the built pages are in `static`."""
