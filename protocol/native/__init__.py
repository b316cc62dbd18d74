"""The msgpack protocol: frames, messages and a sans-IO connection for both roles."""
