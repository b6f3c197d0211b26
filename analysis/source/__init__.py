"""The data source ``raftlog``: finds logs under paths, plans ranges of segments, reads them as Arrow batches."""
