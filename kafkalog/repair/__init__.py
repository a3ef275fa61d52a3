"""What puts a log's derived files right again: indexes, producer snapshots and leader epochs, out of the batches."""
