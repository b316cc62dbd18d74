"""Who may ask for what: logins, and the one guard of all APIs."""
