"""Real data in: neighbour lists, graphs, labelled structures, batches, and the statistics a model starts from."""
