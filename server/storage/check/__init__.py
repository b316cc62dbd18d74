"""Looking for damage: every check of `triolog verify`, and the scrubbing of closed segments."""
