"""What a server has counted, as rates and moments."""
