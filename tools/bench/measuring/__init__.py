"""What every row of the benchmark needs: the machine, a server, samples, a report."""
