"""The permissions of Kafka's clients: logins, and the one guard of all APIs."""
