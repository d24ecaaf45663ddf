"""Routes for processes and for engines that speak SOAP."""
