"""Client processes of the soak: each is told what to do in JSON, and notes in lines of JSON what it did and was told."""
