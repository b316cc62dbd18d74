"""Record batches as Arrow columns: the vectorised codec beside the scalar one. Needs numpy and pyarrow."""
