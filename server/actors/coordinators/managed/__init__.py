"""Coordinators of groups whose assignments the server makes: what they have in common, and that of share groups."""
