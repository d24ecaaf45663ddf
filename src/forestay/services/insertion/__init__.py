"""Users' own batch jobs, GA4GH tasks and runs, and the proxy to other task servers."""
