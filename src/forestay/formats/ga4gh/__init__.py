"""GA4GH's TES and WES."""
