"""Services: carry out the domain's decisions through ports."""
