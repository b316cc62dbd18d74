"""Messages of administrators' APIs."""
