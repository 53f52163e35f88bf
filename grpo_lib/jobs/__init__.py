"""Back-ends that start the processes of a run. Each place where a run may live is one module."""
