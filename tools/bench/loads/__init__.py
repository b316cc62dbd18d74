"""The loads of the benchmark, in processes of their own."""
