"""Every right that Kafka's protocol asks for, as requests of users who have all that one needs, or all but one."""
