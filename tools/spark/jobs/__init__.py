"""Jobs over whole topics or directories, each a Spark job over split descriptors."""
